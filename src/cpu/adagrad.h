#pragma once
// Adagrad's update of rows of a table on the CPU in float32.

#include <cstdint>

namespace metaformer {

struct AdagradRows {
  float* values = nullptr;  // [rows of the table, width], as are these:
  const float* gradients = nullptr;
  float* sums = nullptr;               // of squared gradients
  const std::int64_t* rows = nullptr;  // those to update
  std::int64_t width = 0;
};

// s <- s + g^2, w <- w - rate g / (sqrt(s) + epsilon) for rows[first ... last - 1].
void adagrad_rows(const AdagradRows& table, std::int64_t first, std::int64_t last, float rate, float epsilon);

}  // namespace metaformer
