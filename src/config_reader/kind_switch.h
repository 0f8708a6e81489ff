#pragma once
// A source of a config that names another task or another model than the sources before it.

#include "config/experiment_config.h"
#include "yaml/tree.h"

namespace metaformer {

// Resets the section whose kind changes to that kind's defaults. Kept of the earlier sources: with another task the
// data keys that both tasks have, with another model its context and what has an effect on both models.
void switch_kinds(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance);

}  // namespace metaformer
