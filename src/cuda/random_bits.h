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

}  // namespace metaformer::cuda
