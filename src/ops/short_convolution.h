#pragma once
// Filters of a few tokens, one for every feature, which state-space models and linear attention have before the mixing.

#include <torch/types.h>

namespace metaformer {

struct ShortConvolution {
  torch::Tensor filter_dj;  // the last column is of the token itself
  torch::Tensor bias_d;     // undefined: 0
  bool silu = false;        // of the result: z sigmoid(z)
};

// y_t = bias + sum_j filter_j x_(t - size + 1 + j) of the last `newest` of the tokens, [b, newest, d], in the type of
// x. Only tokens of one segment see each other; undefined segments: all. By a kernel on the CPU, except in float64.
torch::Tensor short_convolution(const ShortConvolution& convolution, const torch::Tensor& x_bed,
                                const torch::Tensor& segment_be, std::int64_t newest);
torch::Tensor short_convolution_by_operators(const ShortConvolution& convolution, const torch::Tensor& x_bed,
                                             const torch::Tensor& segment_be, std::int64_t newest);

}  // namespace metaformer
