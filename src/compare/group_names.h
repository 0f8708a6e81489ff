#pragma once
// Short names of the groups of a comparison, for tables and legends.

#include "compare/comparison.h"

namespace metaformer {

// By group: without ".yaml", without what all names start with up to an underscore, keys by their last part:
// "quadratic score_std=0.3" for "shakespeare_quadratic.yaml model.mixer.score_std=0.3". Only the keys where all are of
// one config. Unique: where two would be the same, all are whole.
std::vector<std::string> short_names(const Comparison& comparison);

}  // namespace metaformer
