#pragma once
// Keys of a config that are set and have no effect, because a key of another section says otherwise, or a number: they
// are mistakes. A key that its section's kind does not have is unknown, not unused.

#include <optional>
#include <string>

#include "config/experiment_config.h"

namespace metaformer {

struct UnusedKey {
  std::string key;
  std::string why;  // "has no effect with ..."
};

// The first of them, or nothing. A resolved config names every key, so only a key that differs from its kind's default
// counts.
std::optional<UnusedKey> find_unused_key(const ExperimentConfig& config);

}  // namespace metaformer
