#pragma once
// What all attention mixers share once their scores, or the vectors behind them, are there.

#include <torch/torch.h>

#include "ops/visibility.h"

namespace metaformer {

// t_bnck = softmax_e(scale r_bnce) v_bnek over the visible e, with the whole score matrix in memory.
torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& value_bnek,
                            const Visibility& visibility, double scale, double dropout);

// The same for r_bnce = q_bnck . k_bnek through the library's attention; nothing of size c e is kept for backward where
// the library has a fused kernel.
torch::Tensor composed_attention(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek,
                                 const torch::Tensor& value_bnek, const Visibility& visibility, double scale,
                                 double dropout);

}  // namespace metaformer
