#pragma once
// A config as YAML and JSON, its differences from the defaults, and its digest.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "config/experiment_config.h"

namespace metaformer {

// Writes text, a number, true, false, null or a list of these on one line, with text quoted where YAML needs it.
std::string yaml_value(const nlohmann::ordered_json& value);

// The value of a field that is neither a section nor has kinds.
nlohmann::ordered_json json_value(const Field& field);

// A config as text: complete, in the order of its fields, readable back to the same config. With train.epochs it has no
// train.steps, which follow from the data.
nlohmann::ordered_json config_to_json(const ExperimentConfig& config);
std::string config_to_yaml(const ExperimentConfig& config);

// Sections of a config, or parts of them, as YAML in the form of users' files.
std::string json_to_yaml(const nlohmann::ordered_json& sections);

// The keys whose values differ from the defaults of the chosen kinds, nested as in the config, sorted by name: a kind
// that is not the default one, and options that are not that kind's defaults. A key that a later version adds is
// therefore absent while it has its default. The number of tokens that train.evaluation sees is left out.
nlohmann::json config_changes(const ExperimentConfig& config);

// 16 hexadecimal digits of the SHA-256 of config_changes without train.cpu_slices, which only affects rounding.
std::string config_digest(const ExperimentConfig& config);

// {"model.mixer.kind": "quadratic", "train.steps": "100"}: the values of nested JSON, as YAML, by their whole paths.
std::map<std::string, std::string> flattened(const nlohmann::ordered_json& config);

// Whether a key of the model affects only training or the length of text that the model sees, and not its output for a
// text that fits.
bool keeps_function(std::string_view key);

}  // namespace metaformer
