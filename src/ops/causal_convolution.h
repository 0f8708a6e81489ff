#pragma once
// Causal convolutions over the tokens with a filter for every feature: the short ones before the mixing of state-space
// models and linear attention, and Hyena's.

#include <torch/types.h>

namespace metaformer {

struct CausalConvolution {
  torch::Tensor filter_dj;  // the last column belongs to the token itself
  torch::Tensor bias_d;     // undefined: 0
  bool silu = false;        // applies z sigmoid(z) to the result
};

// y_t = bias + sum_j filter_j x_(t - size + 1 + j) for the last `newest` tokens: [b, newest, d], in the type of x. Only
// tokens of one segment see each other; undefined segments: one. On the CPU a kernel computes it, except in float64.
torch::Tensor causal_convolution(const CausalConvolution& convolution, const torch::Tensor& x_bed,
                                 const torch::Tensor& segment_be, std::int64_t newest);
torch::Tensor causal_convolution_by_operators(const CausalConvolution& convolution, const torch::Tensor& x_bed,
                                              const torch::Tensor& segment_be, std::int64_t newest);

}  // namespace metaformer
