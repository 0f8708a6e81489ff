#pragma once
// Costs of a model that follow from its config alone: the operations of its products, and the bytes that generation
// carries from token to token.

#include <cstdint>
#include <optional>
#include <string>

#include "config/experiment_config.h"

namespace metaformer {

// Multiplications and additions of the products of a forward pass over `tokens` tokens in rows of the context; for an
// encoder-decoder half of them are sources. `logits`: the number of logits for each.
double forward_operations(const ModelConfig& model, std::int64_t logits, double tokens, bool causal);

struct ModelCosts {
  double operations_per_token = 0;  // forward_operations for rows as long as the context
  // In float32, after as many tokens as the context; nullopt if no text is generated, or none with a state.
  std::optional<std::int64_t> state_bytes;
};
ModelCosts costs_of(const ExperimentConfig& config, std::int64_t vocabulary);

// Sums over all mixers of a transformer, with model.convolution, or the decoder's own; nullopt for other models.
struct MixerFigures {
  std::string kind;
  std::int64_t parameters = 0;
  ModelCosts costs;
};
std::optional<MixerFigures> mixer_figures(const ExperimentConfig& config);

}  // namespace metaformer
