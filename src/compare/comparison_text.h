#pragma once
// A comparison for a terminal.

#include <string>

#include "compare/comparison.h"

namespace metaformer {

// The groups with what differs between them, a block for each metric (mean, standard deviation, number of runs,
// difference with its 95% interval, p value), McNemar's tests, time and size. Lines are at most 100 columns wide,
// unless a config's own values are longer.
std::string to_text(const Comparison& comparison);

}  // namespace metaformer
