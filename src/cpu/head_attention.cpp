#include "cpu/head_attention.h"

namespace metaformer {

static constexpr std::int64_t cache_line = 16;  // floats

void HeadWorkspace::begin(std::int64_t count) {
  constexpr std::int64_t pieces = 32;
  const auto needed = static_cast<std::size_t>(count + (pieces + 1) * cache_line);
  if (memory_.size() < needed) memory_.resize(needed);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  next_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float);
}

float* HeadWorkspace::take(std::int64_t count) {
  float* piece = next_;
  next_ += (count + cache_line - 1) / cache_line * cache_line;
  return piece;
}

}  // namespace metaformer
