#pragma once
// A single value of a config as YAML.

#include <nlohmann/json.hpp>
#include <string>

namespace metaformer {

// Of text, a number, true, false, null or a list of these: on one line, text quoted where YAML needs it.
std::string yaml_value(const nlohmann::ordered_json& value);

}  // namespace metaformer
