#pragma once
// Dropout on the CPU: which entries, and applying it.

#include <cstdint>

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

  std::uint32_t limit_ = 0;  // bits below it: dropped
  float factor_ = 1;
  std::uint32_t low_key_ = 0, high_key_ = 0;
};

}  // namespace metaformer
