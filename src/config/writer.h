#pragma once
// A config as text: complete, in the order of its fields, readable back to the same config.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

nlohmann::ordered_json config_to_json(const ExperimentConfig& config);
std::string config_to_yaml(const ExperimentConfig& config);

// What `config explain` and the documentation show.
struct FieldHelp {
  std::string path;      // "model.mixer.constraint"
  std::string applies;   // "kind: metric" for an option of one kind, else empty
  std::string expected;  // "integer, at least 1", "fp32 or bf16"
  std::string fallback;  // the default
  std::string meaning;
};
std::vector<FieldHelp> explain_config();

}  // namespace metaformer
