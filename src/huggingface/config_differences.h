#pragma once
// What keeps a model from being another one.

#include <string>
#include <vector>

#include "config/model_config.h"

namespace metaformer {

// "model.layers is 4 and must be 12": the keys in which `given` computes another function than `needed`. Keys that only
// concern training, speed or memory may differ, and the context where positions are not learned.
std::vector<std::string> config_differences(const TransformerConfig& given, const TransformerConfig& needed);

}  // namespace metaformer
