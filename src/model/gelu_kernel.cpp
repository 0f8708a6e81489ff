#include "model/gelu_kernel.h"

#include <bit>
#include <cmath>

// The compiler makes vector code of the loops, once for every instruction set listed; the CPU's own is taken at start-up.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)  // its resolvers run before the sanitizer is ready
#define FOR_EVERY_VECTOR_WIDTH __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOR_EVERY_VECTOR_WIDTH
#endif
#define INLINE inline __attribute__((always_inline))

namespace metaformer {

namespace {

// e^x for x <= 0, within 2 units in the last place; 0 below -87, where floats end.
INLINE float exp_of_negative(float x) {
  constexpr float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float to_nearest = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = clamped * log2_e + to_nearest;
  const float n = shifted - to_nearest;
  const float r = (clamped - n * ln2_high) - n * ln2_low;
  float p = 1.9875691500e-4f;  // Cephes' expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float fraction = p * r * r + r + 1.0f;
  const auto power = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23;
  const float value = fraction * std::bit_cast<float>(power);
  return x < -87.0f ? 0.0f : value;
}

struct Gelu {
  float y, slope;
};

INLINE Gelu gelu(float x) {
  constexpr float root_half = 0.707106781f, density_at_0 = 0.398942280f;
  const float magnitude = x < 0 ? -x : x;
  const float e = exp_of_negative(-0.5f * x * x);
  // erfc(z) e^(z^2) as a polynomial in t without a constant term, z = |x| / sqrt(2): relative error below 9e-8 for every z
  // up to 9 (a minimax fit).
  const float t = 1.0f / (1.0f + 0.33f * root_half * magnitude);
  float p = -0.13592817f;
  p = p * t + 0.46268559f;
  p = p * t - 0.35543430f;
  p = p * t + 0.41253722f;
  p = p * t + 0.045013055f;
  p = p * t + 0.20192306f;
  p = p * t + 0.18283737f;
  p = p * t + 0.18636610f;
  const float tail = 0.5f * p * t * e;
  const float below = x < 0 ? tail : 1.0f - tail;
  // Where the exponential is 0 the product with an infinity would not be.
  const float bend = e == 0.0f ? 0.0f : x * density_at_0 * e;
  const float y = below == 0.0f ? 0.0f : x * below;
  return {y, below + bend};
}

INLINE float widen(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

INLINE std::uint16_t narrow(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto rounded = static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  return x != x ? std::uint16_t{0x7fc0} : rounded;
}

}  // namespace

FOR_EVERY_VECTOR_WIDTH
void gelu_with_slope(const float* x, float* y, float* slope, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = gelu(x[i]);
    y[i] = value.y;
    slope[i] = value.slope;
  }
}

FOR_EVERY_VECTOR_WIDTH
void gelu_with_slope_bf16(const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slope, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = gelu(widen(x[i]));
    y[i] = narrow(value.y);
    slope[i] = narrow(value.slope);
  }
}

}  // namespace metaformer
