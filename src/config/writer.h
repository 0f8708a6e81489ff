#pragma once
// A config as text: complete, in the order of its fields, readable back to the same config.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

nlohmann::ordered_json config_to_json(const ExperimentConfig& config);
std::string config_to_yaml(const ExperimentConfig& config);

// Sections of a config, or parts of them, as the files of users are written.
std::string json_to_yaml(const nlohmann::ordered_json& sections);

struct KindHelp {
  std::string name;
  std::string summary;
};

// `section` must be of one of `kinds`.
struct KindCondition {
  std::string section;
  std::vector<std::string> kinds;
};

// What `config explain` and the documentation show.
struct FieldHelp {
  std::string path;      // "model.mixer.constraint"; of what has kinds "model.mixer"
  std::string expected;  // "integer, at least 1", "fp32 or bf16"
  std::string fallback;  // the default
  std::string meaning;
  std::vector<KindHelp> kinds;            // that the key chooses from
  std::vector<KindCondition> conditions;  // for the key to exist, outermost first
};

// Every key once for each meaning or default that it has.
std::vector<FieldHelp> explain_config();

// "model: transformer, model.mixer: metric or quadratic"; "" where the key always exists.
std::string applies_to(const FieldHelp& field);

}  // namespace metaformer
