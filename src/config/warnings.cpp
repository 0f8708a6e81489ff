#include "config/warnings.h"

#include <fmt/format.h>

#include "config/fail.h"

namespace metaformer {

std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance) {
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& key, const std::string& what) {
    warnings.push_back(fmt::format("{}: {}: {}", place_of(provenance, key), key, what));
  };
  if (is<LinearConfig>(config.model)) return {};
  const auto& train = config.train;
  if (const auto warmup = warmup_steps(train.schedule); train.steps <= warmup)
    warn("train.steps", fmt::format("{} is not above train.schedule.warmup_steps {}: all of the training is warm-up",
                                    train.steps, warmup));
  const auto tokens = most_batch_tokens(config);
  if (train.loss_chunks > tokens)
    warn("train.loss_chunks", fmt::format("{} is above the {} tokens of a batch", train.loss_chunks, tokens));
  const auto* transformer = blocks_of(config.model);
  if (const auto chunks = transformer == nullptr ? 1 : chunks_of(transformer->feed_forward); chunks > tokens)
    warn("model.feed_forward.chunks", fmt::format("{} is above the {} tokens of a batch", chunks, tokens));
  return warnings;
}

}  // namespace metaformer
