#pragma once
// Tensors of tokens for kernels under test, in guarded memory; rounding to an element type.

#include <array>
#include <cstring>
#include <numbers>

#include "base/random.h"
#include "cuda/kernel_memory.h"
#include "cuda/metric_case.h"
#include "gpu.h"

namespace metaformer {

// The bits of a number in the type, in the low half if the type is narrow; and the number of such bits.
inline std::uint32_t bits_of(cuda::MetricElement element, double x) {
  const auto value = static_cast<float>(x);
  if (element == cuda::MetricElement::bf16) return gpu::to_bf16(value);
  return element == cuda::MetricElement::fp16 ? gpu::to_fp16(value) : gpu::bits_of(value);
}
inline double number_of(cuda::MetricElement element, std::uint32_t bits) {
  if (element == cuda::MetricElement::bf16) return gpu::from_bf16(static_cast<std::uint16_t>(bits));
  return element == cuda::MetricElement::fp16 ? gpu::from_fp16(static_cast<std::uint16_t>(bits)) : gpu::float_of(bits);
}

inline double stored(cuda::MetricElement element, double x) { return number_of(element, bits_of(element, x)); }

// The number as a factor of a product.
inline double factor(cuda::MetricElement element, double x) {
  const double value = stored(element, x);
  return element == cuda::MetricElement::tf32 ? gpu::float_of(gpu::to_tf32(static_cast<float>(value))) : value;
}

// A [b, n, c, k] tensor in guarded memory, laid out as [b, n, c, k], [b, c, n, k], or [b, c, n, k + 1] without the
// first feature.
class Tokens {
 public:
  Tokens(cuda::MetricElement element, std::int64_t b, std::int64_t n, std::int64_t c, std::int64_t k, Layout layout)
      : element_(element),
        bytes_each_(element == cuda::MetricElement::bf16 || element == cuda::MetricElement::fp16 ? 2 : 4),
        sizes_{n, c, k},
        count_(static_cast<std::size_t>(b * n * c * k)),
        first_(layout == Layout::unaligned ? 1 : 0),
        memory_(bytes_each_ * static_cast<std::size_t>(b * n * c * (k + first_))) {
    const auto pitch = k + first_;
    strides_ = {n * c * pitch, pitch, n * pitch};
    if (layout == Layout::contiguous) strides_ = {n * c * k, c * k, k};
  }

  void* data() const { return memory_.data() + bytes_each_ * static_cast<std::size_t>(first_); }
  const cuda::MetricStrides& strides() const { return strides_; }

  void set(std::size_t index, double value) {
    const auto bits = bits_of(element_, value);
    std::memcpy(place(index), &bits, bytes_each_);
  }
  void set(const Values& values) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }
  Values get() const {
    Values values(count_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, place(i), bytes_each_);
      values[i] = number_of(element_, bits);
    }
    return values;
  }

 private:
  unsigned char* place(std::size_t index) const {
    const auto i = static_cast<std::int64_t>(index);
    const auto [n, c, k] = sizes_;
    const auto offset = i / (n * c * k) * strides_.batch + i / (c * k) % n * strides_.head +
                        i / k % c * strides_.token + i % k + first_;
    return memory_.data() + bytes_each_ * static_cast<std::size_t>(offset);
  }

  cuda::MetricElement element_;
  std::size_t bytes_each_;
  std::array<std::int64_t, 3> sizes_;  // n, c, k
  std::size_t count_;
  std::int64_t first_;
  KernelMemory memory_;
  cuda::MetricStrides strides_;
};

// Normally distributed numbers by the Box-Muller method, rounded to the type.
inline Values normal_values(cuda::MetricElement element, std::uint64_t seed, std::uint64_t stream, std::size_t count,
                            double spread) {
  const Rng rng(seed, RandomPurpose::evaluation, stream);
  Values values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = stored(element, spread * std::sqrt(-2 * std::log(1 - rng.uniform(2 * i))) *
                                    std::cos(2 * std::numbers::pi * rng.uniform(2 * i + 1)));
  return values;
}

}  // namespace metaformer
