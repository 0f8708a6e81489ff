#pragma once
// Activations and dropout of sixteen floats at once, for kernels, which are compiled for vectors.

#include <cstdint>

#include "cpu/dropout.h"
#include "cpu/vector_math.h"

namespace metaformer {

// Activations of sixteen floats, each with its slope: f(x, y, slope) sets y = f(x) and slope = f'(x).

// e / (1 + e)^2 and the like are 0 where e is: their product with an infinity would not be.
METAFORMER_INLINE Lanes product_or_0(Lanes vanishing, Lanes product) { return vanishing == 0.0f ? Lanes{} : product; }

struct GeluLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
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
    y = product_or_0(below, x * below);
    slope = below + product_or_0(e, x * density_at_0 * e);
  }
};

// The logistic function of z, and its slope.
METAFORMER_INLINE void sigmoid_lanes(Lanes z, Lanes& y, Lanes& slope) {
  const auto negative = z < 0.0f;
  const Lanes e = exp_of(negative ? z : -z);
  const Lanes t = 1.0f / (1.0f + e);
  y = negative ? e * t : t;
  slope = e * t * t;
}

struct SiluLanes {
  float beta;
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    Lanes sigmoid, rise;
    sigmoid_lanes(beta * x, sigmoid, rise);
    y = product_or_0(sigmoid, x * sigmoid);
    slope = sigmoid + product_or_0(rise, beta * x * rise);
  }
};

// 0.5 (1 + tanh z) is the logistic function of 2 z.
struct GeluTanhLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    constexpr float twice_root = 1.59576912f, cubic = 0.044715f;  // 2 sqrt(2 / pi)
    const Lanes square = x * x;
    Lanes sigmoid, rise;
    sigmoid_lanes(twice_root * x * (1.0f + cubic * square), sigmoid, rise);
    y = product_or_0(sigmoid, x * sigmoid);
    slope = sigmoid + product_or_0(rise, x * twice_root * (1.0f + 3 * cubic * square) * rise);
  }
};

struct ReluLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    y = x < 0.0f ? Lanes{} : x;
    slope = x > 0.0f ? every_lane(1.0f) : Lanes{};
  }
};

struct ReluSquaredLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    const Lanes positive_part = x < 0.0f ? Lanes{} : x;
    y = positive_part * positive_part;
    slope = 2.0f * positive_part;
  }
};

static_assert(DropoutMask::together == lane_count);

struct DropoutLanes {
  explicit DropoutLanes(const DropoutMask& of_mask) : mask(of_mask) {}

  bool drops() const { return mask.drops(); }

  // Multiply the entries from `place` on, a multiple of DropoutMask::together: 0 or 1 / (1 - probability).
  METAFORMER_INLINE Lanes factors(std::int64_t place) const {
    constexpr UnsignedLanes lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    // The second key goes between two rounds: with only a sum, masks of two seeds would be shifts of one another.
    const auto further = mask.high_key_ ^ static_cast<std::uint32_t>(place >> 32);
    const auto bits = scrambled(scrambled(lane + static_cast<std::uint32_t>(place) + mask.low_key_) ^ further);
    return bits < mask.limit_ ? Lanes{} : every_lane(mask.factor_);
  }

  DropoutMask mask;  // a copy: kernels would read a reference anew after every store
};

}  // namespace metaformer
