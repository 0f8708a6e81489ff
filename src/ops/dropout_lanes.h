#pragma once
// Dropout's mask sixteen entries at a time, for kernels, which are compiled for vectors.

#include "base/vector_math.h"
#include "ops/dropout_mask.h"

namespace metaformer {

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
