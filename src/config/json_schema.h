#pragma once
// The JSON schema of config files, with which editors complete and check them.

#include <nlohmann/json.hpp>

namespace metaformer {

// Draft 7, which YAML language servers support. It has the keys, kinds, ranges, names and defaults of the table of keys
// (schema.h), but no rules between keys (check.cpp). A section that does not name its kind may have the keys of every
// kind, because a base or --set may name it. A quoted number is not accepted as a number.
nlohmann::ordered_json config_schema();

}  // namespace metaformer
