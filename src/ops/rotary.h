#pragma once
// The rotation of queries and keys by their position (rotary position embedding, Su et al. 2021), in the layout of
// halves: features l and l + r of a head are a pair, as in GPT-NeoX and LLaMA.

#include <torch/types.h>

namespace metaformer {

// x_bnck of tokens in order, the angles of token c given by cos_cr and sin_cr (float32, or float64 for such x). The
// first 2 r features are rotated, the others stay. On the CPU in one pass, and backward in another.
torch::Tensor rotate_pairs(const torch::Tensor& x_bnck, const torch::Tensor& cos_cr, const torch::Tensor& sin_cr);

}  // namespace metaformer
