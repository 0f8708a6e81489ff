#pragma once
// Mixers with random weights, and the comparisons that their tests share.

#include <fmt/format.h>

#include "attention/mixer.h"
#include "attention/mixers.h"
#include "attention/score_positions.h"
#include "config/writer.h"
#include "support/torch_catch.h"

namespace metaformer {

inline std::string describe(const MixerConfig& options) {
  ExperimentConfig config;
  transformer(config).mixer = options;
  return config_to_json(config)["model"]["mixer"].dump();
}

// Every parameter drawn at random, so that no formula hides behind an identity.
inline std::shared_ptr<Mixer> random_mixer(const MixerConfig& options, const MixerShape& shape,
                                           torch::ScalarType type = torch::kDouble) {
  torch::manual_seed(7);
  auto mixer = make_mixer(options, shape);
  mixer->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.normal_(0, 0.4);
  mixer->to(type);
  return mixer;
}

// u and v where all layers share those of transformer_xl, [2, n, k]; else undefined.
inline torch::Tensor shared_distance_biases(const MixerConfig& options, const MixerShape& shape) {
  const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions);
  if (xl == nullptr || !xl->shared_biases) return {};
  return torch::randn({2, shape.heads, options->key_width(shape)}, torch::kDouble);
}

// Sets what a model gives to mixers with positions of transformer_xl, in double; does nothing for others.
inline void set_distances(Visibility& visibility, const MixerShape& shape, const torch::Tensor& biases_2nk,
                          std::int64_t queries, std::int64_t keys) {
  const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions);
  if (xl == nullptr) return;
  DistanceTable table(shape.width, xl->clamp_length);
  visibility.distance_ld = table.rows_ld(queries, keys, visibility.causal, torch::zeros(1, torch::kDouble));
  if (!biases_2nk.defined()) return;
  visibility.content_bias_nk = biases_2nk[0];
  visibility.distance_bias_nk = biases_2nk[1];
}

inline double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  const auto difference = (value.to(torch::kDouble) - expected.to(torch::kDouble)).norm().item<double>();
  const auto size = expected.to(torch::kDouble).norm().item<double>();
  return size == 0 ? difference : difference / size;
}

inline torch::Tensor mix(Mixer& mixer, const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                         const Visibility& visibility, MixerState* state = nullptr) {
  Pass pass;
  return mixer.forward(x_bcd, context_bed, visibility, state, pass);
}

inline torch::Tensor mix(Mixer& mixer, const torch::Tensor& x_bcd, const Visibility& visibility,
                         MixerState* state = nullptr) {
  return mix(mixer, x_bcd, x_bcd, visibility, state);
}

// Segment ids of a batch of 2 sequences of 9: packed documents with padding, and one short sequence.
inline torch::Tensor example_segments() {
  return torch::tensor({0, 0, 0, 0, 1, 1, 1, -1, -1, 5, 5, 5, 5, 5, 5, -1, -1, -1}, torch::kLong).view({2, 9});
}

}  // namespace metaformer
