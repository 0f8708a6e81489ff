#pragma once
// Ranges of keys, rules between keys, and keys without effect.

#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "config/yaml.h"

namespace metaformer {

// Configs that are valid and most likely not meant.

// One line each, with the place of the value: "my.yaml:3:9: train.steps: ...".
std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance);

// Ranges and rules between keys, checked once, after all layers of a config are applied.

// Throws Error (exit code 2) for the first value out of range or at odds with another, with where it was set.
void check_config(const ExperimentConfig& config, const Provenance& provenance);

}  // namespace metaformer
