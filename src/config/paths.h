#pragma once
// The paths in a config.

#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

// Paths that are another one for every seed: {seed} in them stands for train.seed. The config keeps them as they were
// written, so that runs of other seeds have the same config.
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

// The paths in a config: all fields of type PathText.
struct ConfigPath {
  std::string key;            // "data.validation_path"
  PathText* value = nullptr;  // nullptr: null
};

// In the order of the fields. They point into `config`.
std::vector<ConfigPath> paths_in(ExperimentConfig& config);

// The files and folders of the section `data` that both configs have as a key, and that differ in where they lie.
std::vector<std::string> moved_data(ExperimentConfig before, ExperimentConfig now);

// Whether the key is that of a file or folder of the section `data`: what may lie elsewhere once a run is trained. The
// tokenizer is not among them: checkpoints have their own.
bool is_data_path(ExperimentConfig config, const std::string& key);

}  // namespace metaformer
