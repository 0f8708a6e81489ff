#pragma once
// Relative positions of Transformer-XL (Dai, Yang, Yang, Carbonell, Le, Salakhutdinov 2019, section 3.3). With queries
// q, keys k and the encoding R_t of the distance t between them:
//   r = (q + u) . k + (q + v) . W_R R_t
// u and v stand for the position of the query, W_R R_t for that of the key. No vector is made for a pair of tokens: the
// products with all distances are computed once per query, and shifted.

#include <mutex>

#include "attention/visibility.h"
#include "config/mixer_options.h"
#include "ops/linear.h"

namespace metaformer {

// R_t = [sin(t w_0) ... sin(t w_m), cos(t w_0) ... cos(t w_m)], w_i = 10000^(-2 i / width), of one distance per row.
class DistanceTable {
 public:
  // `width` is even. Unless it is 0, distances above `clamp_length` count as that one, those below -clamp_length as
  // -clamp_length (XLNet, Yang et al. 2019, clamps so, too).
  DistanceTable(std::int64_t width, std::int64_t clamp_length) : width_(width), clamp_length_(clamp_length) {}

  // For Visibility::distance_ld: of the type of `like`, and where that is. Threads may ask at the same time.
  torch::Tensor rows_ld(std::int64_t queries, std::int64_t keys, bool causal, const torch::Tensor& like);

 private:
  std::int64_t width_, clamp_length_;
  std::mutex mutex_;
  torch::Tensor kept_ld_;  // of distances that were asked for before, from the largest down to its negative
};

// u and v, [n, k] each.
class DistanceBiasesImpl : public Layer {
 public:
  DistanceBiasesImpl(std::int64_t heads, std::int64_t key_width);
  const torch::Tensor& content_nk() const { return content_nk_; }
  const torch::Tensor& distance_nk() const { return distance_nk_; }

 private:
  torch::Tensor content_nk_, distance_nk_;
};
TORCH_MODULE(DistanceBiases);

// What distances add to r_bnce = q_bnck . k_bnek, where q has u already: (q + b) . key_l + term_l + row_c of the row l
// of the pair's distance.
struct DistanceTerms {
  torch::Tensor bias_n1k;  // b = v - u
  torch::Tensor key_nlk;   // W_R R
  torch::Tensor term_n1l;  // undefined: none
  torch::Tensor row_bnc1;  // which a softmax cancels; undefined: none
};

// The part of a layer.
class TransformerXlImpl : public Layer {
 public:
  TransformerXlImpl(const TransformerXlPositionsConfig& config, const MixerShape& shape, std::int64_t key_width);

  // The queries with u.
  torch::Tensor with_content_bias(const torch::Tensor& q_bnck, const Visibility& visibility) const;
  DistanceTerms terms(const Visibility& visibility);

 private:
  std::int64_t heads_;
  Linear projection_;
  DistanceBiases biases_{nullptr};  // none: those of the visibility
};
TORCH_MODULE(TransformerXl);

// q + b, of the type of q.
torch::Tensor queries_of_distances(const torch::Tensor& q_bnck, const DistanceTerms& terms);

// [b, n, c, e], the queries being the last of `keys` tokens. For a key behind its query, where the terms have no such
// distance, the number means nothing: it must be masked.
torch::Tensor distance_scores(const torch::Tensor& q_bnck, const DistanceTerms& terms, std::int64_t keys);

// y_ij = x_(i, c - 1 - i + j) for j < keys, x having c rows and at least `keys` columns; what lies behind a row's end
// is a number of the next row, with a gradient of 0.
torch::Tensor shifted_by_distance(const torch::Tensor& x_bncl, std::int64_t keys);

}  // namespace metaformer
