#pragma once
// Paths that are another one for every seed: {seed} in them stands for train.seed. The config keeps them as they were
// written, so that runs of other seeds have the same config.

#include <optional>
#include <string>

#include "config/experiment_config.h"

namespace metaformer {

inline std::string with_seed(std::string path, const TrainConfig& train) {
  constexpr std::string_view name = "{seed}";
  const auto seed = std::to_string(train.seed);
  for (auto at = path.find(name); at != std::string::npos; at = path.find(name, at + seed.size()))
    path.replace(at, name.size(), seed);
  return path;
}

// The data section of a classifier as it is read.
inline LabelledDataConfig labelled_data(const ExperimentConfig& config) {
  auto data = classification(config).data;
  if (data.extra_path) data.extra_path = with_seed(*data.extra_path, config.train);
  return data;
}

}  // namespace metaformer
