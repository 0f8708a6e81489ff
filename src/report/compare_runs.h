#pragma once
// Compares groups of runs that differ only in their seed.

#include "report/grouping.h"

namespace metaformer {

// Leaves out runs of other data than the first one's and second runs of the same config and seed, and pairs by seed;
// the notes name every run that does not count somewhere. Errors (exit code 2): no run; no such reference or metric.
Comparison compare_runs(std::vector<RunRecord> runs, const ComparisonOptions& options);

}  // namespace metaformer
