#pragma once
// A layer of a config that names another task or another model than the layers below it.

#include <vector>

#include "config/experiment_config.h"
#include "config/tree.h"

namespace metaformer {

// The defaults of the task and of the model that the lowest layer which names one names.
ExperimentConfig defaults_for(const std::vector<ConfigNode>& layers);

// The number of lowest layers that name neither task nor model where a higher one names another than the default. They
// are read as of that kind (defaults_for), and what they say of the default one is dropped, as with switch_kinds.
std::size_t layers_before_kinds(const std::vector<ConfigNode>& layers);

// Resets the section whose kind changes to that kind's defaults. Kept of the lower layers: with another task the data
// keys that both tasks have, with another model its context and what has an effect on both models.
void switch_kinds(const ConfigNode& layer, ExperimentConfig& config, Provenance& provenance);

}  // namespace metaformer
