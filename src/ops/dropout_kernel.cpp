#include "ops/dropout_kernel.h"

#include <algorithm>

#include "base/vector_math.h"

namespace metaformer {

static_assert(DropoutMask::together == lane_count);

DropoutMask::DropoutMask(double probability, std::uint64_t seed)
    : limit_(static_cast<std::uint32_t>(probability * 0x1p32)),
      factor_(static_cast<float>(1 / (1 - probability))),
      low_key_(scrambled(static_cast<std::uint32_t>(seed))),
      high_key_(scrambled(static_cast<std::uint32_t>(seed >> 32) ^ low_key_)) {}

template <class Element>
METAFORMER_INLINE void DropoutMask::apply_to(const Element* x, Element* y, std::int64_t count,
                                             std::int64_t place) const {
  constexpr UnsignedLanes lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto dropped = [&](const Element* from, std::int64_t i) {
    // The second key goes between two rounds: with only a sum, masks of two seeds would be shifts of one another.
    const auto further = high_key_ ^ static_cast<std::uint32_t>((place + i) >> 32);
    const auto bits = scrambled(scrambled(lane + static_cast<std::uint32_t>(place + i) + low_key_) ^ further);
    return bits < limit_ ? Lanes{} : load_lanes(from) * factor_;
  };
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count) store_lanes(y + i, dropped(x + i, i));
  if (i == count) return;
  Element rest[lane_count] = {};
  std::copy(x + i, x + count, rest);
  store_lanes(rest, dropped(rest, i));
  std::copy_n(rest, count - i, y + i);
}

METAFORMER_EVERY_VECTOR_WIDTH
void DropoutMask::apply(const float* x, float* y, std::int64_t count, std::int64_t place) const {
  apply_to(x, y, count, place);
}

METAFORMER_EVERY_VECTOR_WIDTH
void DropoutMask::apply(const std::uint16_t* x, std::uint16_t* y, std::int64_t count, std::int64_t place) const {
  apply_to(x, y, count, place);
}

}  // namespace metaformer
