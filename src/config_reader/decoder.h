#pragma once
// Applies one source of a config (a parsed YAML tree) to an ExperimentConfig and remembers who set what.

#include "config/experiment_config.h"
#include "yaml/tree.h"

namespace metaformer {

// Strict: unknown keys, wrong types and unknown names are Errors (exit code 2) that name place, key and value. A kind
// that differs from the earlier sources' resets that section to the new kind's defaults (task and model: see
// kind_switch.h). Ranges are checked later, once, by check_config: an earlier source may hold what a later one mends.
void apply_source(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance);

}  // namespace metaformer
