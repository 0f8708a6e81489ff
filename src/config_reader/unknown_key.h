#pragma once
// The complaint about a key that the section in which it is written does not have.

#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "yaml/tree.h"

namespace metaformer {

struct UnknownKey {
  const ConfigKey& key;
  const ConfigNode& value;
  std::string path;                       // "train.stepz"
  std::string context;                    // " for kind 'quadratic'", or ""
  const std::vector<std::string>& known;  // the keys of the section
};

// Throws an Error (exit code 2) whose one line says what to write instead: where the key is now, how it is nested in a
// file, which kind has it, or what has a similar name. `config` holds the sources so far.
[[noreturn]] void refuse_unknown_key(const UnknownKey& unknown, const ExperimentConfig& config);

}  // namespace metaformer
