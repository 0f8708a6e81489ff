#pragma once
// Ranges and rules between keys, checked once, after all layers of a config are applied.

#include "config/experiment_config.h"
#include "yaml/tree.h"

namespace metaformer {

// Throws Error (exit code 2) for the first value out of range or at odds with another, with where it was set.
void check_config(const ExperimentConfig& config, const Provenance& provenance);

}  // namespace metaformer
