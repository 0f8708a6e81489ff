#pragma once
// Bytes that tensors take on a device, counted while the meter lives.

#include <torch/types.h>

#include <cstdint>
#include <memory>

namespace metaformer {

class CountingAllocator;

// At most one at a time; tensors made under it may outlive it.
class MemoryMeter {
 public:
  explicit MemoryMeter(torch::Device device);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // Since the meter began.
  std::int64_t current_bytes() const;
  std::int64_t peak_bytes() const;

 private:
  torch::Device device_;
  c10::Allocator* usual_ = nullptr;
  std::int64_t base_bytes_ = 0;
};

}  // namespace metaformer
