#pragma once
// Applies a source of a config (a file, an override) to an experiment.

#include <string>
#include <string_view>
#include <vector>

#include "config/experiment_config.h"
#include "config/yaml.h"

namespace metaformer {

// The error for a key that does not exist, and the key that was probably meant.

// The key of this name ("weight_decay"), the one nested least of several, or the key that nanoGPT or Hugging Face call
// so ("lr", "num_hidden_layers"), as a path; "" if there is none.
std::string full_key(std::string_view name);

// "; did you mean 'train.learning_rate'?" for the unknown key `path` in a section with the keys `known`: what full_key
// finds, else the nearest name in the section, else anywhere; "" if none is near.
std::string suggest_key(const std::string& path, const std::vector<std::string>& known);

// Throws an Error (exit code 2) with the place, the key and its likely correction. `context`: " for kind 'metric'" or
// "".
[[noreturn]] void refuse_unknown_key(const ConfigKey& key, const std::string& path, const std::string& context,
                                     const std::vector<std::string>& known);

// Applies one source of a config (a parsed YAML tree) to an ExperimentConfig and remembers who set what.

// Strict: unknown keys, wrong types and unknown names are Errors (exit code 2) that name place, key and value. A kind
// that differs from the earlier sources' resets that section to the new kind's defaults (a task or model
// keeps the keys that both kinds have). Ranges are checked later, once, by check_config: a later source may correct
// them.
void apply_source(const ConfigNode& source, ExperimentConfig& config, Provenance& provenance);

}  // namespace metaformer
