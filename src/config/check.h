#pragma once
// Ranges of keys, rules between keys, and keys without effect.

#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "config/yaml.h"

namespace metaformer {

// What is valid and probably unintended: one line each, with the place of the value: "my.yaml:3:9: train.steps: ...".
std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance);

// Checked once, after all layers of a config are applied: throws Error (exit code 2) for the first value out of range
// or at odds with another, with where it was set.
void check_config(const ExperimentConfig& config, const Provenance& provenance);

}  // namespace metaformer
