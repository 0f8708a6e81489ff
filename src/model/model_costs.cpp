#include "model/model_costs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "attention/mixer.h"

namespace metaformer {

namespace {

double as_double(std::int64_t count) { return static_cast<double>(count); }

// The average number of logits for a token. A classifier's head is negligible.
std::int64_t logits_of_token(const TaskConfig& task, std::int64_t vocabulary) {
  return std::llround(target_fraction(task) * as_double(vocabulary));
}

double mixer_operations(const MixerConfig& mixer, const MixerShape& shape, double tokens, bool causal) {
  const auto c = as_double(shape.context);
  return cost_of(mixer, shape,
                 {.context = shape.context,
                  .tokens = tokens,
                  .pairs = tokens * (causal ? (c + 1) / 2 : c),
                  .causal = causal})
      .operations;
}

// Calls use(mixer, shape, number of blocks) for each group of equal blocks. Blocks differ by their mixer, and the first
// block of a kind differs from the others (RWKV-7).
void for_mixers(const TransformerConfig& model, const auto& use) {
  std::map<std::pair<const MixerConfig*, bool>, std::int64_t> counts;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    ++counts[{&model.mixer_of(layer), model.is_first_of_kind(layer)}];
  auto shape = model.mixer_shape();
  for (const auto& [blocks, count] : counts) {
    shape.is_first_of_kind = blocks.second;
    use(*blocks.first, shape, count);
  }
}

// The short convolution before the mixer of a block (model.convolution): its operations, for two directions unless it
// is causal, and the bytes that it keeps of earlier tokens.
double convolution_operations(const TransformerConfig& model, double tokens, bool causal) {
  return 2 * tokens * as_double(model.layers * model.convolution * model.width) * (causal ? 1 : 2);
}
std::int64_t convolution_bytes(const TransformerConfig& model) {
  const auto tokens = std::max<std::int64_t>(0, model.convolution - 1);
  return std::int64_t{sizeof(float)} * model.layers * tokens * model.width;
}

double operations_of(const TransformerConfig& model, std::int64_t logits, double tokens, bool causal) {
  const auto fed = model.up_width() + model.hidden_width();
  double operations = 2 * tokens * as_double(model.width * (logits + model.layers * fed)) +
                      convolution_operations(model, tokens, causal);
  for_mixers(model, [&](const MixerConfig& mixer, const MixerShape& shape, std::int64_t blocks) {
    operations += as_double(blocks) * mixer_operations(mixer, shape, tokens, causal);
  });
  return operations;
}

double operations_of(const EncoderDecoderConfig& model, std::int64_t logits, double tokens, bool) {
  const double half = tokens / 2;
  return operations_of(model.encoder_blocks(), 0, half, /*causal=*/false) +
         operations_of(static_cast<const TransformerConfig&>(model), logits, half, /*causal=*/true) +
         as_double(model.layers) * mixer_operations(model.cross_mixer, model.cross_shape(), half, /*causal=*/false);
}

double operations_of(const RecurrentConfig& model, std::int64_t logits, double tokens, bool) {
  const auto of_layer = 2 * model.gates() * model.width * model.width;  // of the input and of the state
  return 2 * tokens * as_double(model.layers * of_layer + model.width * logits);
}

double operations_of(const FeedForwardModelConfig& model, std::int64_t logits, double tokens, bool) {
  return 2 * tokens * as_double(model.hidden * (model.inputs() + logits));
}

double operations_of(const LinearConfig&, std::int64_t, double, bool) { return 0; }  // fitted, not trained by steps

bool looks_back(const ExperimentConfig& config) {
  return is_causal(config.task) || is<EncoderDecoderConfig>(config.model);
}

}  // namespace

double forward_operations(const ModelConfig& model, std::int64_t logits, double tokens, bool causal) {
  return std::visit([&](const auto& options) { return operations_of(options, logits, tokens, causal); }, model);
}

std::optional<MixerFigures> mixer_figures(const ExperimentConfig& config) {
  const auto* model = options_as<TransformerConfig>(config.model);
  if (model == nullptr || model->layers == 0) return std::nullopt;
  MixerFigures figures{.kind = model->mixer_names()};
  auto& state_bytes = figures.costs.state_bytes;
  if (looks_back(config)) state_bytes = convolution_bytes(*model);
  figures.costs.operations_per_token = convolution_operations(*model, 1, looks_back(config));
  for_mixers(*model, [&](const MixerConfig& mixer, const MixerShape& shape, std::int64_t blocks) {
    const auto sizes = sizes_of(mixer, shape, model->context);
    figures.parameters += blocks * sizes.parameters;
    figures.costs.operations_per_token += as_double(blocks) * mixer_operations(mixer, shape, 1, looks_back(config));
    if (state_bytes && sizes.state_bytes)
      *state_bytes += blocks * *sizes.state_bytes;
    else
      state_bytes = std::nullopt;  // if one block carries no state, the model has none
  });
  return figures;
}

ModelCosts costs_of(const ExperimentConfig& config, std::int64_t vocabulary) {
  ModelCosts costs{.operations_per_token = forward_operations(config.model, logits_of_token(config.task, vocabulary),
                                                              /*tokens=*/1, is_causal(config.task))};
  if (const auto mixers = mixer_figures(config)) costs.state_bytes = mixers->costs.state_bytes;
  if (const auto* model = recurrent(config.model); model != nullptr && is_causal(config.task)) {
    const std::int64_t vectors = model->cell == RecurrentCell::lstm ? 2 : 1;
    costs.state_bytes = std::int64_t{sizeof(float)} * vectors * model->layers * model->width;
  }
  return costs;
}

}  // namespace metaformer
