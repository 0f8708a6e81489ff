#include "config/warnings.h"

#include <fmt/format.h>

namespace metaformer {

std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance) {
  const auto& train = config.train;
  const auto warmup = warmup_steps(train.schedule);
  if (is<LinearConfig>(config.model) || train.steps > warmup) return {};
  const std::string key = "train.steps";
  const auto found = provenance.find(key);
  return {fmt::format("{}: {}: {} is not above train.schedule.warmup_steps {}: all of the training is warm-up",
                      found == provenance.end() ? "default" : found->second.str(), key, train.steps, warmup)};
}

}  // namespace metaformer
