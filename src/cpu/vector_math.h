#pragma once
// Sixteen floats at once, in the compiler's portable vectors, which it compiles for AVX-512, AVX2 or scalar code: loads
// and stores, exponentials, and the factors of dropout.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/dropout.h"

// Functions that are fast only when inlined into a caller that is compiled for the CPU's instructions.
#define METAFORMER_INLINE inline __attribute__((always_inline))

// Compiles a function for every instruction set listed; the one for this CPU is selected at start-up.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)  // its resolvers would run before the sanitizer is ready
#define METAFORMER_EVERY_VECTOR_WIDTH __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define METAFORMER_EVERY_VECTOR_WIDTH
#endif

namespace metaformer {

constexpr int lane_count = 16;
typedef float Lanes __attribute__((vector_size(64)));
typedef std::int32_t IntLanes __attribute__((vector_size(64)));
typedef std::uint32_t UnsignedLanes __attribute__((vector_size(64)));
typedef std::uint16_t ShortLanes __attribute__((vector_size(32)));

METAFORMER_INLINE Lanes every_lane(float x) { return Lanes{} + x; }

METAFORMER_INLINE Lanes load_lanes(const float* from) {
  Lanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
METAFORMER_INLINE void store_lanes(float* to, Lanes x) { std::memcpy(to, &x, sizeof x); }

METAFORMER_INLINE ShortLanes load_shorts(const std::uint16_t* from) {
  ShortLanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
METAFORMER_INLINE void store_shorts(std::uint16_t* to, ShortLanes x) { std::memcpy(to, &x, sizeof x); }

// bfloat16, the upper half of a float.
METAFORMER_INLINE Lanes load_lanes(const std::uint16_t* from) {
  return reinterpret_cast<Lanes>(__builtin_convertvector(load_shorts(from), IntLanes) << 16);
}

// Rounded to nearest, ties to even.
METAFORMER_INLINE void store_lanes(std::uint16_t* to, Lanes x) {
  const auto bits = reinterpret_cast<IntLanes>(x);
  const IntLanes rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, not_a_number = IntLanes{} + 0x7fc0;
  store_shorts(to, __builtin_convertvector(x != x ? not_a_number : rounded, ShortLanes));
}

// The first `count` of sixteen numbers, as at the end of a row; the others are `filler`.
template <class Element>
METAFORMER_INLINE Lanes load_some(const Element* from, std::int64_t count, Element filler = 0) {
  if (count == lane_count) return load_lanes(from);
  Element some[lane_count];
  std::fill_n(some, lane_count, filler);
  std::copy_n(from, count, some);
  return load_lanes(some);
}
template <class Element>
METAFORMER_INLINE void store_some(Element* to, Lanes x, std::int64_t count) {
  if (count == lane_count) return store_lanes(to, x);
  Element some[lane_count];
  store_lanes(some, x);
  std::copy_n(some, count, to);
}

// A hash that scatters regular numbers (Wellons' lowbias32), for one number or sixteen.
template <class Bits>
METAFORMER_INLINE Bits scrambled(Bits x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// Transposes 16 x 16 floats: steps 8, 4, 2 and 1 exchange blocks of that size across the diagonal.
template <int Step>
METAFORMER_INLINE void exchange_blocks(Lanes (&rows)[lane_count]) {
  IntLanes upper, lower;  // lanes of the second of two rows count from 16 on
  for (int i = 0; i < lane_count; ++i) {
    upper[i] = i & Step ? lane_count + i - Step : i;
    lower[i] = i & Step ? lane_count + i : i + Step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < lane_count; ++i) {
    if (i & Step) continue;
    const Lanes a = rows[i], b = rows[i + Step];
    rows[i] = __builtin_shuffle(a, b, upper);
    rows[i + Step] = __builtin_shuffle(a, b, lower);
  }
}
METAFORMER_INLINE void transpose_lanes(Lanes (&rows)[lane_count]) {
  exchange_blocks<8>(rows);
  exchange_blocks<4>(rows);
  exchange_blocks<2>(rows);
  exchange_blocks<1>(rows);
}

// In the order of the lanes.
METAFORMER_INLINE float sum_of(Lanes x) {
  float total = 0;
  for (int i = 0; i < lane_count; ++i) total += x[i];
  return total;
}

// Both halves become one, then halves of it: four steps.
METAFORMER_INLINE float greatest_of(Lanes x) {
  constexpr IntLanes lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma GCC unroll 4
  for (int step = lane_count / 2; step > 0; step /= 2) {
    const Lanes other = __builtin_shuffle(x, lane ^ step);
    x = x > other ? x : other;
  }
  return x[0];
}

// The greatest number of each lane in x[0], ..., x[count - 1], sixteen at a time. A rest of fewer than sixteen is not
// read; -infinity: there are not sixteen.
METAFORMER_INLINE Lanes greatest_lanes(const float* x, std::int64_t count) {
  Lanes greatest = every_lane(-std::numeric_limits<float>::infinity());
  for (std::int64_t i = 0; i + lane_count <= count; i += lane_count) {
    const Lanes part = load_lanes(x + i);
    greatest = part > greatest ? part : greatest;
  }
  return greatest;
}

// Loads and stores sixteen numbers of a storage type.
template <class From, class To>
METAFORMER_INLINE void copy_lanes(const From* from, To* to) {
  if constexpr (std::is_same_v<From, To>)
    std::memcpy(to, from, lane_count * sizeof(To));
  else
    store_lanes(to, load_lanes(from));
}

// e^x within 2 units in the last place for x in [-87, 88]; 0 below, where it underflows. NaN stays NaN.
METAFORMER_INLINE Lanes exp_of(Lanes x) {
  constexpr float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float to_nearest = 12582912.0f;  // 1.5 * 2^23: adding a number to it rounds the number to a whole one
  const auto vanishes = x < -87.0f;
  const Lanes inside = vanishes ? every_lane(-87.0f) : x;
  const Lanes n = (inside * log2_e + to_nearest) - to_nearest;
  const Lanes r = (inside - n * ln2_high) - n * ln2_low;
  Lanes p = every_lane(1.9875691500e-4f);  // Cephes' expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const Lanes fraction = p * r * r + r + 1.0f;
  const auto power = reinterpret_cast<Lanes>((__builtin_convertvector(n, IntLanes) + 127) << 23);
  return vanishes ? Lanes{} : fraction * power;
}

// The logistic function of z, and its slope.
METAFORMER_INLINE void sigmoid_lanes(Lanes z, Lanes& y, Lanes& slope) {
  const auto negative = z < 0.0f;
  const Lanes e = exp_of(negative ? z : -z);
  const Lanes t = 1.0f / (1.0f + e);
  y = negative ? e * t : t;
  slope = e * t * t;
}

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
