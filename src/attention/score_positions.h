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

  // What stands for queries before a form is applied to them, with u; itself for positions of other kinds.
  torch::Tensor with_content_bias(const torch::Tensor& q_bnck, const Visibility& visibility) const {
    return transformer_xl_.is_empty() ? q_bnck : transformer_xl_->with_content_bias(q_bnck, visibility);
  }
  // Nothing for positions of other kinds.
  std::optional<DistanceTerms> distance_terms(const Visibility& visibility) {
    if (transformer_xl_.is_empty()) return std::nullopt;
    return transformer_xl_->terms(visibility);
  }

 private:
  std::optional<RotaryPositions> rotary_;
  Shaw shaw_{nullptr};
  TransformerXl transformer_xl_{nullptr};
};

}  // namespace metaformer
