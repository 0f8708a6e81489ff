#pragma once
// A vector for a region of tokens: max(0, bias + a row of a table for the token at each place), a convolution over
// one-hot vectors (Johnson and Zhang 2015).

#include <torch/types.h>

namespace metaformer {

// rows_bcp: int, the row of weight_rd at each place of the region of each token; -1: nothing stands there. [b, c, d].
// On the CPU in float32 the gradient of the weight is a sparse tensor of the rows that were read.
torch::Tensor region_vectors(const torch::Tensor& rows_bcp, const torch::Tensor& weight_rd,
                             const torch::Tensor& bias_d);

// The greatest of them over the tokens, [b, d]: the same numbers without room for all vectors. A token without a row at
// its first place is none; 0 where there is no token. The gradient's rows are those of the tokens that were greatest.
torch::Tensor greatest_region_vectors(const torch::Tensor& rows_bcp, const torch::Tensor& weight_rd,
                                      const torch::Tensor& bias_d);

}  // namespace metaformer
