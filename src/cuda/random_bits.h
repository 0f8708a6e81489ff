#pragma once
// The random bits of dropout on the device: those of RandomDraw::seed() and DropoutMask on the host.

#include <cstdint>

#include "gpu.h"

namespace metaformer::cuda {

// splitmix64's output function, as in base/random.h.
GPU_ANYWHERE std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// As in cpu/vector_math.h.
GPU_DEVICE std::uint32_t scrambled(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// 32 bits for every place, of a draw of the key in device memory.
class PlaceBits {
 public:
  // mixed_number: mixed(the number of the draw), the same for all threads.
  GPU_DEVICE PlaceBits(const std::int64_t* key, std::uint64_t mixed_number) {
    const auto seed = mixed(static_cast<std::uint64_t>(*key) ^ mixed_number);
    low_ = scrambled(static_cast<std::uint32_t>(seed));
    high_ = scrambled(static_cast<std::uint32_t>(seed >> 32) ^ low_);
  }

  // Whose place 0 is `place`; those that follow have the same upper half.
  GPU_DEVICE PlaceBits from(std::int64_t place) const {
    const auto bits = static_cast<std::uint64_t>(place);
    return {low_ + static_cast<std::uint32_t>(bits), high_ ^ static_cast<std::uint32_t>(bits >> 32)};
  }

  GPU_DEVICE std::uint32_t at(std::uint32_t place) const { return scrambled(scrambled(place + low_) ^ high_); }

 private:
  GPU_DEVICE PlaceBits(std::uint32_t low, std::uint32_t high) : low_(low), high_(high) {}

  std::uint32_t low_, high_;
};

// The constants of a dropout, the same for all threads.
struct DropRule {
  std::uint64_t mixed_number = 0;  // of the draw
  std::uint32_t limit = 0;         // bits below it: dropped
  float factor = 1;                // of the entries that are kept

  DropRule() = default;
  DropRule(double probability, std::uint64_t number)
      : mixed_number(mixed(number)),
        limit(static_cast<std::uint32_t>(probability * 0x1p32)),
        factor(static_cast<float>(1 / (1 - probability))) {}
};

// A bit for each of Size consecutive places, the first lowest: whether the entry is dropped.
template <int Size>
GPU_DEVICE unsigned dropped_at(const PlaceBits& bits, std::uint32_t limit, std::int64_t place) {
  unsigned dropped = 0;
  GPU_UNROLL
  for (int i = 0; i < Size; ++i) dropped |= static_cast<unsigned>(bits.from(place + i).at(0) < limit) << i;
  return dropped;
}

}  // namespace metaformer::cuda
