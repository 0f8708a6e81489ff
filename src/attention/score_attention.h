#pragma once
// What all attention mixers share once their scores, or the vectors behind them, are there.

#include <torch/torch.h>

#include "attention/visibility.h"
#include "ops/pass.h"

namespace metaformer {

struct ScoreMixing {
  double scale = 1;
  double dropout = 0;  // of the weights, in training
};

// t_bnck = softmax_e(scale r_bnce) v_bnek over the visible e, with the whole score matrix in memory.
torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& value_bnek,
                            const Visibility& visibility, const ScoreMixing& mixing, Pass& pass);

// The same for r_bnce = q_bnck . k_bnek, keeping nothing of size c e for backward: by our kernel on the CPU, else by
// the library's attention where it has a fused kernel. Dropout that our kernel does not do takes mix_by_scores, since
// the library would draw it from its own generator.
torch::Tensor composed_attention(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek,
                                 const torch::Tensor& value_bnek, const Visibility& visibility,
                                 const ScoreMixing& mixing, Pass& pass);

}  // namespace metaformer
