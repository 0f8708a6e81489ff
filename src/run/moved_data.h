#pragma once
// Data of a run that lie elsewhere now: --set data.path=NEW.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "run/run_directory.h"

namespace metaformer {

// Both check by SHA-256 that the data at the paths of the keys `moved` (moved_data of config/experiment_config.h) are
// those that the run was trained on. Errors (exit code 3): others, with both digests.

// Of what is a file, before it is read: texts with other labels or characters would be another error.
void require_moved_files(const RunDirectory& run, const ExperimentConfig& config,
                         const std::vector<std::string>& moved);

// Of all that was read, and says so in the log. A run that does not know its digests: a warning.
void require_moved_data(const RunDirectory& run, const ExperimentConfig& config, const std::vector<std::string>& moved,
                        const nlohmann::ordered_json& description);

// "train.sha256 is 86c4... and was 9d8c..." of the first digest that differs from those in the run's environment.json;
// "" where none does, or the run has none.
std::string differing_digest(const RunDirectory& run, const nlohmann::ordered_json& description);

}  // namespace metaformer
