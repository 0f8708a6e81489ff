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

  GPU_DEVICE std::uint32_t at(std::int64_t place) const {
    const auto further = high_ ^ static_cast<std::uint32_t>(static_cast<std::uint64_t>(place) >> 32);
    return scrambled(scrambled(static_cast<std::uint32_t>(place) + low_) ^ further);
  }

 private:
  std::uint32_t low_, high_;
};

}  // namespace metaformer::cuda
