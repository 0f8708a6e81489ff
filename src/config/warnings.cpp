#include "config/warnings.h"

#include <fmt/format.h>

namespace metaformer {

namespace {

std::string place(const Provenance& provenance, const std::string& key) {
  const auto found = provenance.find(key);
  return found == provenance.end() ? "default" : found->second.str();
}

}  // namespace

std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance) {
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& key, const std::string& what) {
    warnings.push_back(fmt::format("{}: {}: {}", place(provenance, key), key, what));
  };
  const auto* model = std::get_if<TransformerConfig>(&config.model);
  if (model == nullptr) return {};
  const auto& train = config.train;
  if (const auto warmup = warmup_steps(train.schedule); train.steps <= warmup)
    warn("train.steps", fmt::format("{} is not above train.schedule.warmup_steps {}: all of the training is warm-up",
                                    train.steps, warmup));
  const auto tokens = train.batch_size * model->context;
  if (train.loss_chunks > tokens)
    warn("train.loss_chunks", fmt::format("{} is above the {} tokens of a batch", train.loss_chunks, tokens));
  if (const auto chunks = chunks_of(model->feed_forward); chunks > tokens)
    warn("model.feed_forward.chunks", fmt::format("{} is above the {} tokens of a batch", chunks, tokens));
  return warnings;
}

}  // namespace metaformer
