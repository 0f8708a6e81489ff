#include "cpu/rms_norm.h"

#include <cmath>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

METAFORMER_INLINE float sum_of_squares(const float* x, std::int64_t width) {
  Lanes total = {};
  std::int64_t i = 0;
  for (; i + lane_count <= width; i += lane_count) {
    const Lanes part = load_lanes(x + i);
    total += part * part;
  }
  float sum = sum_of(total);
  for (; i < width; ++i) sum += x[i] * x[i];
  return sum;
}

// The sum of dy gain x; adds dy x factor to the gain's gradient.
METAFORMER_INLINE float add_gain_gradient(const float* x, const float* gain, const float* dy, float factor,
                                          float* gain_gradient, std::int64_t width) {
  Lanes total = {};
  std::int64_t i = 0;
  for (; i + lane_count <= width; i += lane_count) {
    const Lanes product = load_lanes(dy + i) * load_lanes(x + i);
    total += product * load_lanes(gain + i);
    store_lanes(gain_gradient + i, load_lanes(gain_gradient + i) + product * factor);
  }
  float sum = sum_of(total);
  for (; i < width; ++i) {
    sum += dy[i] * x[i] * gain[i];
    gain_gradient[i] += dy[i] * x[i] * factor;
  }
  return sum;
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void normalise_by_rms(const float* x, const float* gain, float* y, float* factors, std::int64_t rows,
                      std::int64_t width, float epsilon) {
  for (std::int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const float factor = 1 / std::sqrt(sum_of_squares(x, width) / static_cast<float>(width) + epsilon);
    if (factors != nullptr) factors[row] = factor;
    for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * factor * gain[i];
  }
}

METAFORMER_EVERY_VECTOR_WIDTH
void rms_norm_gradients(const RmsNormRows& rows, float* dx, float* gain_gradient) {
  const auto width = rows.width;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const float *x = rows.x + row * width, *dy = rows.dy + row * width;
    const float factor = rows.factors[row];
    const float product = add_gain_gradient(x, rows.gain, dy, factor, gain_gradient, width);
    const float shift = factor * factor * product / static_cast<float>(width);
    float* out = dx + row * width;
    for (std::int64_t i = 0; i < width; ++i) out[i] = factor * (dy[i] * rows.gain[i] - x[i] * shift);
  }
}

}  // namespace metaformer
