#include "cpu/adagrad.h"

#include <cmath>

#include "cpu/vector_math.h"

namespace metaformer {

METAFORMER_EVERY_VECTOR_WIDTH
void adagrad_rows(const AdagradRows& table, std::int64_t first, std::int64_t last, float rate, float epsilon) {
  for (auto i = first; i < last; ++i) {
    const auto at = table.rows[i] * table.width;
    float* __restrict values = table.values + at, * __restrict sums = table.sums + at;
    const float* __restrict gradients = table.gradients + at;
    for (std::int64_t j = 0; j < table.width; ++j) {
      const float gradient = gradients[j], sum = sums[j] + gradient * gradient;
      sums[j] = sum;
      values[j] -= rate * gradient / (std::sqrt(sum) + epsilon);
    }
  }
}

}  // namespace metaformer
