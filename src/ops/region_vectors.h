#pragma once
// A vector for each region of tokens: max(0, bias + the sum over its places of the table's row for the token there), a
// convolution over one-hot vectors (Johnson and Zhang 2015).

#include <torch/types.h>

namespace metaformer {

// rows_bcp: int, the row of weight_rd for each place of each token's region; -1: an empty place. Returns [b, c, d]. On
// the CPU in float32 the gradient of the weight is a sparse tensor of the rows that were read.
torch::Tensor region_vectors(const torch::Tensor& rows_bcp, const torch::Tensor& weight_rd,
                             const torch::Tensor& bias_d);

// The greatest of these vectors' numbers over the tokens, [b, d], without memory for all vectors. A token whose first
// place is empty does not count; 0 if there is no token. The gradient has only rows of the regions with the greatest
// values.
torch::Tensor greatest_region_vectors(const torch::Tensor& rows_bcp, const torch::Tensor& weight_rd,
                                      const torch::Tensor& bias_d);

}  // namespace metaformer
