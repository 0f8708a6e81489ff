#pragma once
// Dropout on the CPU: which entries, and applying it.

#include <cstdint>

#include "cpu/vector_math.h"

namespace metaformer {

// Which entries of a tensor dropout takes, as a function of a seed and the entry's place alone: threads need not agree
// on an order, and backward draws the same again.
class DropoutMask {
 public:
  DropoutMask() = default;  // keeps all

  // probability: of the entries that become 0, in [0, 1).
  DropoutMask(double probability, std::uint64_t seed);

  bool drops() const { return limit_ > 0; }

  static constexpr std::int64_t together = 16;  // entries that are drawn at once

  // y = x / (1 - probability) or 0, for `count` entries of which the first stands at `place`, a multiple of `together`.
  void apply(const float* x, float* y, std::int64_t count, std::int64_t place) const;

  // The same of bfloat16 (the upper halves of floats), rounded to nearest even.
  void apply(const std::uint16_t* x, std::uint16_t* y, std::int64_t count, std::int64_t place) const;

 private:
  friend struct DropoutLanes;
  template <class Element>
  void apply_to(const Element* x, Element* y, std::int64_t count, std::int64_t place) const;

  std::uint32_t limit_ = 0;  // bits below it: dropped
  float factor_ = 1;
  std::uint32_t low_key_ = 0, high_key_ = 0;
};

// Dropout's mask sixteen entries at a time, for kernels, which are compiled for vectors.

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
