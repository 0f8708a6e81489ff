#pragma once
// The figures of a comparison.

#include <vector>

#include "compare/comparison.h"
#include "inspect/pictures.h"

namespace metaformer {

// For each metric the values of all groups (METRIC), and their differences to the reference (METRIC_differences).
std::vector<NamedFigure> figures_of(const Comparison& comparison);

}  // namespace metaformer
