#pragma once
// What all attention mixers share once their scores, or the vectors behind them, are there.

#include <torch/types.h>

#include <optional>

#include "attention/score_positions.h"
#include "attention/visibility.h"
#include "config/mixer_config.h"
#include "ops/pass.h"

namespace metaformer {

struct ScoreMixing {
  double scale = 1;
  double dropout = 0;                           // of the weights, in training
  const Shaw* shaw = nullptr;                   // vectors of distances, added to keys and values; or none
  std::optional<DistanceTerms> distances = {};  // of positions transformer_xl; the queries have u already
};

// t_bnck = softmax_e(scale r_bnce + bias) v_bnek over the visible e, with the whole score matrix in memory; a probe
// observes it. `q_bnck`: the queries that the vectors of distances are multiplied by.
torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& q_bnck,
                            const torch::Tensor& value_bnek, const Visibility& visibility, const ScoreMixing& mixing,
                            Pass& pass);

// Whether only mix_by_scores can do it: something is added to the scores that no kernel knows, or a probe observes
// them.
inline bool needs_scores(const Visibility& visibility, const ScoreMixing& mixing, const Pass& pass) {
  return visibility.score_bias_nce.defined() || mixing.shaw != nullptr || pass.wants_scores();
}

// The same for r_bnce = q_bnck . k_bnek. With the backend `reference`, and where needs_scores, by mix_by_scores; else
// keeping nothing of size c e for backward: by our kernel on the CPU, else by the library's attention where it has a
// fused kernel. Distances and dropout where our kernel is not taken go by mix_by_scores: the library does not know the
// first, and would draw the second from its own generator.
torch::Tensor attend(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnek,
                     const Visibility& visibility, const ScoreMixing& mixing, Backend backend, Pass& pass);

// The same for r_bnce = q_bnck . k_bnek + term_bne1, in one product of vectors with a feature more.
torch::Tensor attend_with_key_term(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek,
                                   const torch::Tensor& term_bne1, const torch::Tensor& value_bnek,
                                   const Visibility& visibility, const ScoreMixing& mixing, Backend backend,
                                   Pass& pass);

// The same as attend() of tokens that attend to themselves, from one projection into queries, keys and values, [b, c, 3
// n k], and with joined heads: [b, c, n k].
torch::Tensor attend_projection(const torch::Tensor& projected_bcd, std::int64_t heads, const Visibility& visibility,
                                const ScoreMixing& mixing, Backend backend, Pass& pass);

}  // namespace metaformer
