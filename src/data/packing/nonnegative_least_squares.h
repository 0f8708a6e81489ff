#pragma once
// Non-negative least squares with many sparse columns.

#include <cstdint>
#include <vector>

namespace metaformer {

struct SparseEntry {
  std::int64_t row = 0;
  double value = 0;
};
using SparseColumn = std::vector<SparseEntry>;  // at most one entry per row

// The x >= 0 that minimises |A x - b| for the columns of A, by the active sets of Lawson and Hanson (1974, chapter 23),
// to rounding. Time is about (rows)^3.
std::vector<double> nonnegative_least_squares(const std::vector<SparseColumn>& columns, const std::vector<double>& b);

}  // namespace metaformer
