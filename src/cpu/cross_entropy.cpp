#include "cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

METAFORMER_INLINE float greatest_logit(const float* x, std::int64_t width) {
  const Lanes greatest = greatest_lanes(x, width);
  const auto rest = width % lane_count;
  const Lanes part = load_some(x + width - rest, rest, -infinity);
  return greatest_of(part > greatest ? part : greatest);
}

struct RowSums {
  float exponentials, logits;
};

METAFORMER_INLINE RowSums sums_of(const float* x, std::int64_t width, float greatest) {
  Lanes exponentials = {}, logits = {};
  std::int64_t i = 0;
  for (; i + lane_count <= width; i += lane_count) {
    const Lanes part = load_lanes(x + i);
    exponentials += exp_of(part - greatest);
    logits += part;
  }
  exponentials += exp_of(load_some(x + i, width - i, -infinity) - greatest);
  logits += load_some(x + i, width - i);
  return {sum_of(exponentials), sum_of(logits)};
}

METAFORMER_INLINE void write_gradient(const float* x, std::int64_t width, float greatest, float log_sum, float factor,
                                      float share, float* gradient) {
  std::int64_t i = 0;
  for (; i + lane_count <= width; i += lane_count)
    store_lanes(gradient + i, (exp_of(load_lanes(x + i) - greatest - log_sum) - share) * factor);
  const Lanes rest = (exp_of(load_some(x + i, width - i) - greatest - log_sum) - share) * factor;
  store_some(gradient + i, rest, width - i);
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void cross_entropy_rows(const LogitRows& rows, float* greatest, float* log_sums, double* losses) {
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    greatest[row] = 0;
    log_sums[row] = 0;
    losses[row] = 0;
    if (rows.targets[row] < 0) continue;
    const float* x = rows.logits + row * rows.width;
    greatest[row] = greatest_logit(x, rows.width);
    const auto sums = sums_of(x, rows.width, greatest[row]);
    const double log_sum = std::log(static_cast<double>(sums.exponentials));
    const double mean = static_cast<double>(sums.logits) / static_cast<double>(rows.width);
    log_sums[row] = static_cast<float>(log_sum);
    losses[row] = static_cast<double>(greatest[row]) + log_sum;
    losses[row] -= (1 - rows.smoothing) * static_cast<double>(x[rows.targets[row]]);
    if (rows.smoothing > 0) losses[row] -= rows.smoothing * mean;
  }
}

METAFORMER_EVERY_VECTOR_WIDTH
void cross_entropy_gradients(const LogitRows& rows, const float* greatest, const float* log_sums, float factor,
                             float* gradient) {
  const auto share = static_cast<float>(rows.smoothing / static_cast<double>(rows.width));
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    float* dx = gradient + row * rows.width;
    const auto target = rows.targets[row];
    if (target < 0) {
      std::fill_n(dx, rows.width, 0.0f);
      continue;
    }
    write_gradient(rows.logits + row * rows.width, rows.width, greatest[row], log_sums[row], factor, share, dx);
    dx[target] -= factor * static_cast<float>(1 - rows.smoothing);
  }
}

}  // namespace metaformer
