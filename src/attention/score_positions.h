#pragma once
// Positions inside a mixer with scores: rotary ones turn queries and keys, Shaw's add vectors to keys and values,
// Transformer-XL's to queries, and compare those with distances. Those that are only added to the scores come with the
// Visibility (attention/score_bias.h).

#include <optional>

#include "attention/rotary_positions.h"
#include "attention/shaw.h"
#include "attention/transformer_xl.h"
#include "config/mixer_options.h"

namespace metaformer {

class ScorePositions {
 public:
  // Registers its parameters, if it has any, in `owner`. `key_width`: features of a query and a key.
  ScorePositions(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_width);

  bool rotates() const { return rotary_.has_value(); }

  // x_bnck as scores see them, the last of `tokens` tokens in order; x itself where nothing is rotated.
  torch::Tensor rotated(const torch::Tensor& x_bnck, std::int64_t tokens);

  const Shaw* shaw() const { return shaw_.is_empty() ? nullptr : &shaw_; }

  // What stands for queries before a form is applied to them, with u; itself for positions of other kinds, and where
  // the visibility has no distances.
  torch::Tensor with_content_bias(const torch::Tensor& q_bnck, const Visibility& visibility) const {
    return knows_distances(visibility) ? transformer_xl_->with_content_bias(q_bnck, visibility) : q_bnck;
  }
  // Nothing in those cases.
  std::optional<DistanceTerms> distance_terms(const Visibility& visibility) {
    if (!knows_distances(visibility)) return std::nullopt;
    return transformer_xl_->terms(visibility);
  }

 private:
  bool knows_distances(const Visibility& visibility) const {
    return !transformer_xl_.is_empty() && visibility.distance_ld.defined();
  }

  std::optional<RotaryPositions> rotary_;
  Shaw shaw_{nullptr};
  TransformerXl transformer_xl_{nullptr};
};

}  // namespace metaformer
