#include "attention/score_positions.h"

namespace metaformer {

ScorePositions::ScorePositions(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_width) {
  if (const auto* rotary = std::get_if<RotaryPositionsConfig>(&shape.positions)) rotary_.emplace(*rotary, key_width);
  if (const auto* shaw = std::get_if<ShawPositionsConfig>(&shape.positions))
    shaw_ = owner.register_module("positions", Shaw(shaw->max_distance, key_width, shape.head_width()));
  if (const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions))
    transformer_xl_ = owner.register_module("positions", TransformerXl(*xl, shape, key_width));
}

torch::Tensor ScorePositions::rotated(const torch::Tensor& x_bnck, std::int64_t tokens) {
  return rotary_ ? rotary_->rotate(x_bnck, tokens) : x_bnck;
}

}  // namespace metaformer
