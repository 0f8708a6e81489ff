#include "cpu/dropout.h"
#include "cpu/vector_math.h"

namespace metaformer {

DropoutMask::DropoutMask(double probability, std::uint64_t seed)
    : limit_(static_cast<std::uint32_t>(probability * 0x1p32)),
      factor_(static_cast<float>(1 / (1 - probability))),
      low_key_(scrambled(static_cast<std::uint32_t>(seed))),
      high_key_(scrambled(static_cast<std::uint32_t>(seed >> 32) ^ low_key_)) {}

template <class Element>
static METAFORMER_INLINE void apply_mask(const DropoutMask& mask, const Element* x, Element* y, std::int64_t count,
                                         std::int64_t place) {
  const DropoutLanes lanes(mask);
  // A dropped NaN is dropped: no product with 0.
  const auto dropped = [&](Lanes values, std::int64_t i) {
    const auto factors = lanes.factors(place + i);
    return factors == 0 ? Lanes{} : values * factors;
  };
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count) store_lanes(y + i, dropped(load_lanes(x + i), i));
  if (i < count) store_some(y + i, dropped(load_some(x + i, count - i), i), count - i);
}

METAFORMER_EVERY_VECTOR_WIDTH
void DropoutMask::apply(const float* x, float* y, std::int64_t count, std::int64_t place) const {
  apply_mask(*this, x, y, count, place);
}

METAFORMER_EVERY_VECTOR_WIDTH
void DropoutMask::apply(const std::uint16_t* x, std::uint16_t* y, std::int64_t count, std::int64_t place) const {
  apply_mask(*this, x, y, count, place);
}

}  // namespace metaformer
