#pragma once
// What a config changes of the defaults, and the digest by which runs of the same config are recognised.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/experiment_config.h"

namespace metaformer {

// The keys whose values differ from the defaults of the chosen kinds, nested as in the config, sorted by name: a kind
// that is not the default one, and options that are not that kind's defaults. A key that a later version adds therefore
// changes nothing while it has its default. How many tokens train.evaluation sees is left out.
nlohmann::json config_changes(const ExperimentConfig& config);

// 16 hexadecimal digits of the SHA-256 of config_changes, train.cpu_slices left out: it only rounds.
std::string config_digest(const ExperimentConfig& config);

// {"model.mixer.kind": "quadratic", "train.steps": "100"}: nested JSON by the whole path of each value, the values as
// YAML.
std::map<std::string, std::string> flattened(const nlohmann::ordered_json& config);

// Whether a key of the model says how it trains, or how far it sees, but not what it computes from a text that fits.
bool keeps_function(std::string_view key);

}  // namespace metaformer
