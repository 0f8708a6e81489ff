#pragma once
// Short names of the groups of a comparison, for tables and legends.

#include "compare/comparison.h"

namespace metaformer {

// "a" for "a.yaml".
std::string without_ending(const std::string& name);

// By group: without ".yaml", without what all configs start with up to an underscore, without the overrides that all
// groups have, keys by their last part: "quadratic score_std=0.3" for "shakespeare_quadratic.yaml
// model.mixer.score_std=0.3". Only the overrides where all are of one config, only the config where each has its own.
// Unique: where two would be the same, all are whole.
std::vector<std::string> short_names(const std::vector<ComparedGroup>& groups);

}  // namespace metaformer
