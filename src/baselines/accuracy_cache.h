#pragma once
// Reference accuracies, kept for later runs on the same data.

#include <nlohmann/json.hpp>

#include "config/experiment_config.h"

namespace metaformer {

// compute_reference_accuracies, kept in cache_folder()/baselines by what they follow from (`description` of the data,
// with its digests; data.*), unless data.cache is off. Ignores a damaged entry with a warning and computes it again.
nlohmann::ordered_json cached_reference_accuracies(const ExperimentConfig& config,
                                                   const nlohmann::ordered_json& description, bool offline);

}  // namespace metaformer
