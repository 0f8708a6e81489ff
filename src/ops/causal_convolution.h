#pragma once
// Convolutions over a token and those before it by a filter of every feature: the short ones before the mixing of
// state-space models and linear attention, and Hyena's.

#include <torch/types.h>

namespace metaformer {

struct CausalConvolution {
  torch::Tensor filter_dj;  // the last column is of the token itself
  torch::Tensor bias_d;     // undefined: 0
  bool silu = false;        // of the result: z sigmoid(z)
};

// y_t = bias + sum_j filter_j x_(t - size + 1 + j) of the last `newest` of the tokens, [b, newest, d], in the type of
// x. Only tokens of one segment see each other; undefined segments: all. By a kernel on the CPU, except in float64.
torch::Tensor causal_convolution(const CausalConvolution& convolution, const torch::Tensor& x_bed,
                                 const torch::Tensor& segment_be, std::int64_t newest);
torch::Tensor causal_convolution_by_operators(const CausalConvolution& convolution, const torch::Tensor& x_bed,
                                              const torch::Tensor& segment_be, std::int64_t newest);

}  // namespace metaformer
