#pragma once
// Applies one layer of a config (a parsed YAML tree) to an ExperimentConfig and remembers who set what.

#include <map>
#include <string>

#include "config/experiment_config.h"
#include "config/tree.h"

namespace metaformer {

// "train.steps" -> where its value was written. Keys that no layer set are absent.
using Provenance = std::map<std::string, Location>;

// Strict: unknown keys, wrong types and unknown names are Errors (exit code 2) that name place, key and value. A `kind`
// that differs from the lower layers' resets that section to the new kind's defaults (model.kind: what is not of that
// kind in model and train). Ranges are checked later, once, by check_config: a lower layer may hold what a higher one
// mends.
void apply_layer(const ConfigNode& layer, ExperimentConfig& config, Provenance& provenance);

}  // namespace metaformer
