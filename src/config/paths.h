#pragma once
// The paths in a config: all fields of type PathText.

#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

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
