#pragma once
// Attention by scores, which all mixers with scores share: norms of queries and keys, softmax, values.

#include <torch/types.h>

#include <optional>

#include "attention/mixer.h"
#include "attention/score_positions.h"
#include "config/mixer_config.h"
#include "ops/functional.h"
#include "ops/layer.h"
#include "ops/pass.h"

namespace metaformer {

// RMS normalisation of the vectors of every head (Zhang and Sennrich 2019), for queries and keys (Henry et al. 2020);
// its gain may give way to a temperature, as in cosine attention (Liu et al. 2022, Swin v2).
class HeadNormImpl : public Layer {
 public:
  static constexpr double epsilon = 1e-6;

  HeadNormImpl(std::int64_t head_width, bool learned_gain) : head_width_(head_width) {
    if (learned_gain) gain_k_ = add_parameter("weight", head_width, {.init = Init::ones()});
  }

  // x / sqrt(mean x^2 + epsilon) * gain, over the features of a head; statistics in float32 or wider. Without a learned
  // gain it is 1, and |x|^2 the width of a head.
  torch::Tensor forward(const torch::Tensor& x_bnck) {
    const auto type = torch::promote_types(x_bnck.scalar_type(), torch::kFloat);
    const auto gain_k = gain_k_.defined() ? gain_k_ : torch::ones(head_width_, x_bnck.options().dtype(type));
    // By token, as projections lie and as heads are joined again.
    return rms_norm(x_bnck.transpose(1, 2), gain_k, epsilon).transpose(1, 2).to(x_bnck.scalar_type());
  }

  // Undefined where none is learned.
  const torch::Tensor& learned_gain() const { return gain_k_; }

  // The parameter, or ones.
  torch::Tensor gain() const { return gain_k_.defined() ? gain_k_ : torch::ones(head_width_); }

 private:
  std::int64_t head_width_;
  torch::Tensor gain_k_;  // undefined: none is learned
};
TORCH_MODULE(HeadNorm);

// [n, k], the same for every head. Undefined for an empty norm.
inline torch::Tensor gain_of(const HeadNorm& norm, std::int64_t heads) {
  return norm.is_empty() ? torch::Tensor() : norm->gain().detach().repeat({heads, 1});
}

// Registers what each head multiplies its scores by, [n]; undefined where that is not learned.
inline torch::Tensor add_temperature(Layer& owner, std::int64_t heads, bool learned) {
  if (!learned) return {};
  return owner.add_parameter("temperature", heads, {.init = Init::ones()});
}

struct ScoreMixing {
  double scale = 1;
  double dropout = 0;                           // of the weights, in training
  const Shaw* shaw = nullptr;                   // vectors of distances, added to keys and values; or none
  std::optional<DistanceTerms> distances = {};  // of positions transformer_xl; the queries have u already
};

// Whether positions need the whole matrix of scores: those that are added to scores; Transformer-XL's where the context
// is longer than our kernel takes.
bool need_pairs(const PositionsConfig& positions, std::int64_t context);

// Of softmax attention with `projections` matrices of width x width, the output's included, whose scores are products
// of `score_width` numbers. `form_operations`: what the forms of all heads take.
MixerCost attention_cost(const MixerShape& shape, const MixerLoad& load, Backend backend, std::int64_t projections,
                         std::int64_t score_width, double form_operations);

// t_bnck = softmax_e(scale r_bnce + bias) v_bnek over the visible e, with the whole score matrix in memory; a probe
// observes it. `q_bnck`: the queries that the vectors of distances are multiplied by.
torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& q_bnck,
                            const torch::Tensor& value_bnek, const Visibility& visibility, const ScoreMixing& mixing,
                            Pass& pass);

// Whether only mix_by_scores can compute it: something is added to the scores that no kernel knows, or a probe observes
// them.
inline bool needs_scores(const Visibility& visibility, const ScoreMixing& mixing, const Pass& pass) {
  return visibility.score_bias_nce.defined() || mixing.shaw != nullptr || pass.wants_scores();
}

// The same for r_bnce = q_bnck . k_bnek. With the backend `reference`, and where needs_scores, by mix_by_scores; else
// keeping nothing of size c e for backward: by our kernel on the CPU, with the backend `automatic` by the kernels
// of cuda/ where weights are dropped or tokens have segments (kernel_choice.h), else by the library's attention where
// it has a fused kernel. Distances and dropout where our kernels are not taken go by mix_by_scores: the library does
// not know the first, and would draw the second from its own generator.
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
