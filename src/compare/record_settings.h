#pragma once
// The config keys of a run as "KEY" -> "VALUE in YAML".

#include <map>
#include <string>

#include "config/experiment_config.h"

namespace metaformer {

// Those that are not default (config/changes.h), without train.seed.
std::map<std::string, std::string> changed_settings(const ExperimentConfig& config);

// Every key that applies, from those that are not default. Nothing more than the given ones where this version of the
// program does not know one of them.
std::map<std::string, std::string> all_settings(const std::map<std::string, std::string>& changed);

}  // namespace metaformer
