#pragma once
// How checks of a config fail.

#include <string>
#include <vector>

#include "config/yaml.h"

namespace metaformer {

// Where a source has set the key, or "default".
std::string place_of(const Provenance& provenance, const std::string& key);

// Throws Error (exit code 2): "PLACE: KEY: what", with the first of the keys, and the place of the first that a source
// has set.
[[noreturn]] void fail(const Provenance& provenance, const std::vector<std::string>& keys, const std::string& what);

}  // namespace metaformer
