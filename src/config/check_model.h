#pragma once
// Rules between the keys of a model, and between them and those of other sections.

#include "config/experiment_config.h"
#include "yaml/tree.h"

namespace metaformer {

// Throws Error (exit code 2) for the first value at odds with another, with where it was set.
void check_model(const ExperimentConfig& config, const Provenance& provenance);

}  // namespace metaformer
