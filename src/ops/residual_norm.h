#pragma once
// The residual sum at the end of a branch and the norm before the next one, by the kernels of cuda/residual_norm.h,
// with gradients.

#include <torch/types.h>

#include "ops/pass.h"

namespace metaformer {

// The sum x + dropout(y) of the residual stream and the result of a branch. Dropout acts in training, as dropout() of
// ops/dropout.h.
struct ResidualSum {
  torch::Tensor x_bcd;  // undefined: the block has no residual connections
  torch::Tensor y_bcd;
  double dropout = 0;
};

// The norm over the last dimension.
struct RowNorm {
  bool centred = false;          // layer norm; otherwise RMS norm
  torch::Tensor gain_d, bias_d;  // bias_d undefined: none
  double epsilon = 0;
};

struct SumAndNorm {
  torch::Tensor sum_bcd;  // float32
  torch::Tensor normed_bcd;
};

// Whether there are kernels for these devices, types and sizes: x and the norm in float32, y in float32, bfloat16 or
// float16.
bool residual_norm_fits(const ResidualSum& sum, const RowNorm& norm);

// The sum and its norm in the type `normed`, float32, bfloat16 or float16, by a kernel each way; requires
// residual_norm_fits(). The sum has the bits that operators give, with as many draws. Runs on the current stream and
// never waits for it. Equal inputs give equal bits, of gradients too.
SumAndNorm residual_norm(const ResidualSum& sum, const RowNorm& norm, torch::ScalarType normed, Pass& pass);

}  // namespace metaformer
