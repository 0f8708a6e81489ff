#include "ops/gelu_kernel.h"

#include <algorithm>

#include "base/vector_math.h"

namespace metaformer {

namespace {

METAFORMER_INLINE void gelu_lanes(Lanes x, Lanes& y, Lanes& slope) {
  constexpr float root_half = 0.707106781f, density_at_0 = 0.398942280f;
  const auto negative = x < 0.0f;
  const Lanes magnitude = negative ? -x : x;
  const Lanes e = exp_of(x * x * -0.5f);
  // erfc(z) e^(z^2) as a polynomial in t without a constant term, z = |x| / sqrt(2): relative error below 9e-8 for
  // every z up to 9 (a minimax fit).
  const Lanes t = 1.0f / (1.0f + 0.33f * root_half * magnitude);
  Lanes p = every_lane(-0.13592817f);
  p = p * t + 0.46268559f;
  p = p * t - 0.35543430f;
  p = p * t + 0.41253722f;
  p = p * t + 0.045013055f;
  p = p * t + 0.20192306f;
  p = p * t + 0.18283737f;
  p = p * t + 0.18636610f;
  const Lanes tail = 0.5f * p * t * e;
  const Lanes below = negative ? tail : 1.0f - tail;
  // Where a factor is 0 the product with an infinity would not be.
  y = below == 0.0f ? Lanes{} : x * below;
  slope = below + (e == 0.0f ? Lanes{} : x * density_at_0 * e);
}

template <class Element>
METAFORMER_INLINE void for_all(const Element* x, Element* y, Element* slope, std::int64_t count) {
  Lanes value, derivative;
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count) {
    gelu_lanes(load_lanes(x + i), value, derivative);
    store_lanes(y + i, value);
    store_lanes(slope + i, derivative);
  }
  if (i == count) return;
  Element rest[3][lane_count] = {};
  std::copy(x + i, x + count, rest[0]);
  gelu_lanes(load_lanes(rest[0]), value, derivative);
  store_lanes(rest[1], value);
  store_lanes(rest[2], derivative);
  std::copy_n(rest[1], count - i, y + i);
  std::copy_n(rest[2], count - i, slope + i);
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void gelu_with_slope(const float* x, float* y, float* slope, std::int64_t count) { for_all(x, y, slope, count); }

METAFORMER_EVERY_VECTOR_WIDTH
void gelu_with_slope(const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slope, std::int64_t count) {
  for_all(x, y, slope, count);
}

}  // namespace metaformer
