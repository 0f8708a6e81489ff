#include "bench/memory_meter.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstring>

namespace metaformer {

// Passes on to the usual allocator of the CPU, with the size of a block in front of it: LibTorch frees a block
// by its address, without its size. Blocks may outlive any meter, so there is one for ever.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static CountingAllocator allocator;
    return allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto* base = static_cast<std::byte*>(usual_->raw_allocate(bytes + front));
    std::memcpy(base, &bytes, sizeof(bytes));
    const auto now = current_ += static_cast<std::int64_t>(bytes);
    for (auto peak = peak_.load(); now > peak && !peak_.compare_exchange_weak(peak, now);) continue;
    return {base + front, base + front, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  void begin(c10::Allocator* usual) {
    usual_ = usual;
    peak_ = current_.load();
  }
  std::int64_t current() const { return current_; }
  std::int64_t peak() const { return peak_; }

 private:
  static constexpr std::size_t front = 64;  // keeps the alignment of what follows

  static void release(void* pointer) {
    auto* base = static_cast<std::byte*>(pointer) - front;
    std::size_t bytes = 0;
    std::memcpy(&bytes, base, sizeof(bytes));
    instance().current_ -= static_cast<std::int64_t>(bytes);
    instance().usual_->raw_deallocate(base);
  }

  c10::Allocator* usual_ = nullptr;
  std::atomic<std::int64_t> current_{0}, peak_{0};
};

MemoryMeter::MemoryMeter(torch::Device device) : device_(device) {
  if (device.is_cpu()) {
    usual_ = c10::GetCPUAllocator();
    CountingAllocator::instance().begin(usual_);
    c10::SetCPUAllocator(&CountingAllocator::instance());
    base_bytes_ = CountingAllocator::instance().current();
  } else {
    at::accelerator::resetPeakStats(device.index());
    base_bytes_ = at::accelerator::getDeviceStats(device.index()).allocated_bytes[0].current;
  }
}

MemoryMeter::~MemoryMeter() {
  if (usual_ != nullptr) c10::SetCPUAllocator(usual_);
}

std::int64_t MemoryMeter::current_bytes() const {
  const auto now = device_.is_cpu() ? CountingAllocator::instance().current()
                                    : at::accelerator::getDeviceStats(device_.index()).allocated_bytes[0].current;
  return now - base_bytes_;
}

std::int64_t MemoryMeter::peak_bytes() const {
  const auto peak = device_.is_cpu() ? CountingAllocator::instance().peak()
                                     : at::accelerator::getDeviceStats(device_.index()).allocated_bytes[0].peak;
  return peak - base_bytes_;
}

}  // namespace metaformer
