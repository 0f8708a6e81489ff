#pragma once
// Positions that act on scores.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "attention/mixer.h"
#include "config/mixer_config.h"
#include "ops/layer.h"
#include "ops/linear.h"

namespace metaformer {

// Cosines, then sines, for positions 0, 1, ... and the pairs of features.
torch::Tensor rotary_tables_2cr(const RotaryPositionsConfig& config, std::int64_t key_width, std::int64_t tokens);

// A table of positions, computed once for the largest number of tokens that was asked for.
class PositionTable {
 public:
  explicit PositionTable(std::function<torch::Tensor(std::int64_t tokens)> make) : make_(std::move(make)) {}

  // The table for `tokens` tokens or more, on that device and of that type. Thread-safe.
  torch::Tensor of(std::int64_t tokens, torch::Device device, torch::ScalarType type);

 private:
  std::function<torch::Tensor(std::int64_t tokens)> make_;
  std::mutex mutex_;
  std::int64_t tokens_ = 0;  // for which kept_ was made
  torch::Tensor kept_;
};

// Rotates queries and keys of a mixer by the positions of their tokens.
class RotaryPositions {
 public:
  RotaryPositions(const RotaryPositionsConfig& config, std::int64_t key_width);

  // x_bnck, each token rotated by its position; they are the last of `tokens` tokens in order, or a single one of them
  // at `place_1` (Visibility; undefined: the last). Thread-safe.
  torch::Tensor rotate(const torch::Tensor& x_bnck, std::int64_t tokens, const torch::Tensor& place_1 = {});

 private:
  PositionTable tables_2cr_;  // cosines, then sines
};

// Positions as numbers that are added to the scores of every pair of tokens, the same in all layers: ALiBi's or T5's.
class ScoreBias : public Layer {
 public:
  // `causal`: no token attends to a later one.
  ScoreBias(const PositionsConfig& positions, std::int64_t heads, bool causal);

  // [n, c, e], to be added to the scaled scores of queries and keys with these offsets.
  torch::Tensor forward(const torch::Tensor& offset_ce) const;

 private:
  std::optional<T5PositionsConfig> t5_;
  bool causal_;
  torch::Tensor slope_n11_, table_rn_;  // of ALiBi; of T5
};

// nullptr for positions of another kind.
std::shared_ptr<ScoreBias> make_score_bias(const PositionsConfig& positions, std::int64_t heads, bool causal);

// ALiBi's slope of every head (Press, Smith, Lewis 2022): 2^(-8 / n), and its powers, for n heads if n is a power of
// two; else the slopes of the next lower power of two, followed by every second slope of twice that power.
std::vector<double> alibi_slopes(std::int64_t heads);

// The bucket of each offset (key minus query): T5's (Raffel et al. 2020). Half of the buckets hold one distance each,
// the others grow logarithmically up to max_distance. Not causal: the upper half of the buckets is for later keys.
torch::Tensor t5_bucket_ce(const torch::Tensor& offset_ce, const T5PositionsConfig& config, bool causal);

// Relative positions as learned vectors that are added to keys and values (Shaw, Uszkoreit, Vaswani 2018).
class ShawImpl : public Layer {
 public:
  // One vector for each distance -max_distance ... max_distance, to which larger ones are clipped.
  ShawImpl(std::int64_t max_distance, std::int64_t key_width, std::int64_t value_width);

  // q_c . a_(e - c) for every query and key (equation 4), [b, n, c, e].
  torch::Tensor scores(const torch::Tensor& q_bnck, const torch::Tensor& offset_ce) const;

  // sum over e of s_bnce a_(e - c), the term that is added to the mixed values (equation 3): [b, n, c, k].
  torch::Tensor values(const torch::Tensor& weight_bnce, const torch::Tensor& offset_ce) const;

 private:
  // [c, e]: the row of the tables for every pair.
  torch::Tensor row_ce(const torch::Tensor& offset_ce) const;

  std::int64_t max_distance_;
  torch::Tensor keys_rk_, values_rk_;
};
TORCH_MODULE(Shaw);

// Relative positions of Transformer-XL (Dai, Yang, Yang, Carbonell, Le, Salakhutdinov 2019, section 3.3). With queries
// q, keys k and the encoding R_t of the distance t between them:
//   r = (q + u) . k + (q + v) . W_R R_t
// u and v stand for the position of the query, W_R R_t for that of the key. No vector is made for a pair of tokens: the
// products with all distances are computed once per query, and shifted.

// R_t = [sin(t w_0) ... sin(t w_m), cos(t w_0) ... cos(t w_m)], w_i = 10000^(-2 i / width), of one distance per row.
class DistanceTable {
 public:
  // `width` is even. Unless `clamp_length` is 0, distances are clamped to -clamp_length ... clamp_length, as in XLNet
  // (Yang et al. 2019).
  DistanceTable(std::int64_t width, std::int64_t clamp_length);

  // The rows for Visibility::distance_ld, of the type and on the device of `like`. Thread-safe.
  torch::Tensor rows_ld(std::int64_t queries, std::int64_t keys, bool causal, const torch::Tensor& like);

 private:
  PositionTable table_ld_;  // from the largest distance down to its negative
};

// u and v, [n, k] each.
struct DistanceBiasesImpl : Layer {
  DistanceBiasesImpl(std::int64_t heads, std::int64_t key_width)
      : content_nk(add_parameter("content", {heads, key_width}, {.init = Init::normal()})),
        distance_nk(add_parameter("distance", {heads, key_width}, {.init = Init::normal()})) {}
  torch::Tensor content_nk, distance_nk;
};
TORCH_MODULE(DistanceBiases);

// The terms that distances add to r_bnce = q_bnck . k_bnek, where q already includes u: (q + b) . key_l + term_l +
// row_c, where l is the row of the pair's distance.
struct DistanceTerms {
  torch::Tensor bias_n1k;       // b = v - u
  torch::Tensor key_nlk;        // W_R R
  torch::Tensor term_n1l = {};  // undefined: none
  torch::Tensor row_bnc1 = {};  // a softmax cancels it; undefined: none
};

// The part of Transformer-XL's positions that each layer has.
struct TransformerXlImpl : torch::nn::Module {
  TransformerXlImpl(const TransformerXlPositionsConfig& config, const MixerShape& shape, std::int64_t key_width);
  Linear projection;               // W_R
  DistanceBiases biases{nullptr};  // empty: those of the visibility
};
TORCH_MODULE(TransformerXl);

// q + b, in the type of q.
inline torch::Tensor queries_of_distances(const torch::Tensor& q_bnck, const DistanceTerms& terms) {
  return q_bnck + terms.bias_n1k.to(q_bnck.scalar_type());
}

// The scores of distances, [b, n, c, e]; the queries are the last of `keys` tokens. If the terms have no distances to
// keys after the query, the numbers for these keys are meaningless and must be masked.
torch::Tensor distance_scores(const torch::Tensor& q_bnck, const DistanceTerms& terms, std::int64_t keys);

// Positions inside a mixer with scores: rotary ones rotate queries and keys, Shaw's add vectors to keys and values, and
// Transformer-XL's add vectors to queries and compare these with distances. Positions that are only added to the scores
// come with the Visibility (SharedPositions).
class ScorePositions {
 public:
  // Registers its parameters, if it has any, in `owner`. `key_width`: features of a query and a key; `value_width`: of
  // a value.
  ScorePositions(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_width, std::int64_t value_width);

  bool rotates() const { return rotary_.has_value(); }

  // x_bnck, all `tokens` tokens or the queries among them, rotated by their positions; x itself without rotary
  // positions.
  torch::Tensor rotated(const torch::Tensor& x_bnck, std::int64_t tokens, const Visibility& visibility) {
    if (!rotary_) return x_bnck;
    return rotary_->rotate(x_bnck, tokens, x_bnck.size(2) == tokens ? torch::Tensor() : visibility.place_1);
  }

  const Shaw* shaw() const { return shaw_.is_empty() ? nullptr : &shaw_; }

  // Adds u to queries, before a form is applied to them. Unchanged for positions of other kinds, and if the visibility
  // has no distances.
  torch::Tensor with_content_bias(const torch::Tensor& q_bnck, const Visibility& visibility) const;
  // nullopt in those cases.
  std::optional<DistanceTerms> distance_terms(const Visibility& visibility);

 private:
  // The biases of the layer, or of the visibility: content (u), then distance (v).
  std::pair<torch::Tensor, torch::Tensor> biases_nk(const Visibility& visibility) const;
  bool knows_distances(const Visibility& visibility) const {
    return !transformer_xl_.is_empty() && visibility.distance_ld.defined();
  }

  std::optional<RotaryPositions> rotary_;
  Shaw shaw_{nullptr};
  TransformerXl transformer_xl_{nullptr};
};

// The part of positions in scores that is the same in all layers of a model.
class SharedPositions {
 public:
  // Registers its parameters, if it has any, in `owner`. `key_width`: features of a query and a key.
  SharedPositions(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_width, bool causal);

  // Sets the positions in `visibility` for `queries` of `keys` tokens, in tensors of the type and device of `like`.
  void add_to(Visibility& visibility, std::int64_t queries, std::int64_t keys, const torch::Tensor& like, Pass& pass);

 private:
  double dropout_;
  std::shared_ptr<ScoreBias> bias_;          // of positions that are added to scores
  std::optional<DistanceTable> distances_;   // transformer_xl only
  DistanceBiases distance_biases_{nullptr};  // of transformer_xl, unless every layer has its own
};

}  // namespace metaformer
