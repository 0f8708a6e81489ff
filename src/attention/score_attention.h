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

// RMS normalisation of the vectors of every head (Zhang and Sennrich 2019), for queries and keys (Henry et al. 2020); a
// temperature may replace its gain, as in cosine attention (Liu et al. 2022, Swin v2).
class HeadNormImpl : public Layer {
 public:
  static constexpr double epsilon = 1e-6;

  HeadNormImpl(std::int64_t head_width, bool learned_gain) : head_width_(head_width) {
    if (learned_gain) gain_k_ = add_parameter("weight", head_width, {.init = Init::ones()});
  }

  // x / sqrt(mean x^2 + epsilon) * gain, over the features of a head; statistics in float32 or wider. Without a learned
  // gain the gain is 1, and |x|^2 of the result is the width of a head.
  torch::Tensor forward(const torch::Tensor& x_bnck) {
    const auto type = torch::promote_types(x_bnck.scalar_type(), torch::kFloat);
    const auto gain_k = gain_k_.defined() ? gain_k_ : torch::ones(head_width_, x_bnck.options().dtype(type));
    // In the layout [b, c, n, k] of projections, which joining the heads needs again.
    return rms_norm(x_bnck.transpose(1, 2), gain_k, epsilon).transpose(1, 2).to(x_bnck.scalar_type());
  }

  // Undefined if the gain is not learned.
  const torch::Tensor& learned_gain() const { return gain_k_; }

  // The parameter, or ones.
  torch::Tensor gain() const { return gain_k_.defined() ? gain_k_ : torch::ones(head_width_); }

 private:
  std::int64_t head_width_;
  torch::Tensor gain_k_;  // undefined: not learned
};
TORCH_MODULE(HeadNorm);

// The gain of a norm, [n, k], the same for every head. Undefined for an empty norm.
inline torch::Tensor gain_of(const HeadNorm& norm, std::int64_t heads) {
  return norm.is_empty() ? torch::Tensor() : norm->gain().detach().repeat({heads, 1});
}

// Registers a learned factor of each head's scores, [n]; undefined if it is not learned.
inline torch::Tensor add_temperature(Layer& owner, std::int64_t heads, bool learned) {
  if (!learned) return {};
  return owner.add_parameter("temperature", heads, {.init = Init::ones()});
}

// Queries, keys and values of a mixer, by one projection with the rows of the queries, then of the keys, then of the
// values. Each of them is as wide as the model if it has as many heads as the queries. Keys or values may have fewer
// heads, each of which then serves the same number of consecutive query heads.
class QueryKeyValue {
 public:
  // Registers `query_key_value` in `owner`.
  QueryKeyValue(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_heads, std::int64_t value_heads,
                std::int64_t value_width);
  // Registers `query_norm` and `key_norm`, by which queries and keys are normalised.
  void add_norms(torch::nn::Module& owner, bool learned_gain);

  struct Vectors {
    torch::Tensor q_bnck, k_bnek, value_bnek;
  };
  // The queries of x, and the keys and values of all tokens that it sees, including those in the state (slots 0 and 1),
  // which holds those of a `window` (0: all). Keys and values of another sequence are computed once for a state, and
  // then held in it.
  Vectors project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, MixerState* state,
                  std::int64_t window = 0);

  // Queries, keys and values side by side, [b, c, rows].
  torch::Tensor project_all(const torch::Tensor& x_bcd) { return projection_(x_bcd); }

  // The weight's rows of queries and keys, which determine the scores; a view.
  torch::Tensor score_rows() const { return projection_->weight().narrow(0, 0, query_rows() + key_rows()); }
  ScoreForm score_form() const;

  const Linear& projection() const { return projection_; }
  const HeadNorm& query_norm() const { return query_norm_; }  // empty: not normalised
  const HeadNorm& key_norm() const { return key_norm_; }
  std::int64_t query_rows() const { return shape_.width; }
  std::int64_t key_rows() const { return key_heads_ * shape_.head_width(); }
  std::int64_t value_rows() const { return value_heads_ * value_width_; }

 private:
  Vectors project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed);
  torch::Tensor queries(const torch::Tensor& x_bcd) const;
  // Rows first ... first + rows - 1 of the projection.
  torch::Tensor part(const torch::Tensor& x_bcd, std::int64_t first, std::int64_t rows) const;

  MixerShape shape_;
  std::int64_t key_heads_, value_heads_, value_width_;
  Linear projection_{nullptr};
  HeadNorm query_norm_{nullptr}, key_norm_{nullptr};
};

struct ScoreMixing {
  double scale = 1;
  double dropout = 0;                           // of the weights, in training
  const Shaw* shaw = nullptr;                   // vectors of distances, added to keys and values; or nullptr
  std::optional<DistanceTerms> distances = {};  // of positions transformer_xl; the queries already include u
  torch::Tensor sink_n = {};                    // of each head: one more scaled score, with value 0; undefined: none
  AttentionWeights weights = AttentionWeights::softmax;
};

// Whether positions need the whole matrix of scores: those that are added to scores do, and Transformer-XL's if the
// context is longer than our kernel takes.
bool need_pairs(const PositionsConfig& positions, std::int64_t context);

// The work of attention, and the numbers that it keeps for the backward pass.
struct AttentionWork {
  std::int64_t rows = 0;  // of all projections, the output's included, each as wide as the model
  std::int64_t score_width = 0, value_width = 0;
  std::int64_t activations = 0;  // per token, without those of pairs and of distances
  double form_operations = 0;    // operations of the forms of all heads
  bool keeps_pairs = false;      // with every backend
};
MixerCost attention_cost(const MixerShape& shape, const MixerLoad& load, Backend backend, const AttentionWork& work);

// t_bnck = softmax_e(scale r_bnce + bias) v_bnek over the visible e, with the whole score matrix in memory; a probe
// observes it. `q_bnck`: the queries that the vectors of distances are multiplied by. Values may have fewer heads.
torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& q_bnck,
                            const torch::Tensor& value_bnek, const Visibility& visibility, const ScoreMixing& mixing,
                            Pass& pass);

// Whether only mix_by_scores can compute it: a term that no kernel supports is added to the scores, the weights are not
// a softmax, or a probe observes them.
inline bool needs_scores(const Visibility& visibility, const ScoreMixing& mixing, const Pass& pass) {
  return visibility.score_bias_nce.defined() || mixing.shaw != nullptr || pass.wants_scores() ||
         mixing.weights != AttentionWeights::softmax;
}

// The same for r_bnce = q_bnck . k_bnek; keys may have fewer heads, too. With the backend `reference`, or if
// needs_scores(), mix_by_scores computes it. Otherwise nothing of size c e is kept for backward. It is computed by our
// kernel on the CPU, with the backend `automatic` by the kernels of cuda/ if weights are dropped or tokens have
// segments (kernel_choice.h), else by LibTorch's attention if that has a fused kernel. Distances and dropout that our
// kernels do not compute are left to mix_by_scores: LibTorch's attention does not support the first, and would draw the
// second from its own generator.
torch::Tensor attend(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnek,
                     const Visibility& visibility, const ScoreMixing& mixing, Backend backend, Pass& pass);

// The same for r_bnce = q_bnck . k_bnek + term_bne1, in one product of vectors with one more feature.
torch::Tensor attend_with_key_term(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek,
                                   const torch::Tensor& term_bne1, const torch::Tensor& value_bnek,
                                   const Visibility& visibility, const ScoreMixing& mixing, Backend backend,
                                   Pass& pass);

// Self-attention by attend(), from one projection to queries, keys and values, [b, c, 3 n k]. Returns joined heads,
// [b, c, n k].
torch::Tensor attend_projection(const torch::Tensor& projected_bcd, std::int64_t heads, const Visibility& visibility,
                                const ScoreMixing& mixing, Backend backend, Pass& pass);

}  // namespace metaformer
