#pragma once
// Keys of a config that are set and have no effect, because another key says otherwise: they are mistakes.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

struct UnusedKey {
  std::string key;
  std::string why;  // "has no effect with ..."
};

// The first of them, or nothing. A resolved config names every key, so only a key that differs from its default counts.
std::optional<UnusedKey> find_unused_key(const ExperimentConfig& config);

// Whether a key of the sections model and train ("train.steps") means something with model.kind: linear.
bool applies_to_linear(std::string_view key);

}  // namespace metaformer
