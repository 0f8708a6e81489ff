#pragma once
// Configs that are valid and most likely not meant.

#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "yaml/tree.h"

namespace metaformer {

// One line each, with the place of the value: "my.yaml:3:9: train.steps: ...".
std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance);

}  // namespace metaformer
