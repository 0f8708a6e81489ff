#include "bench/memory_meter.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>

namespace metaformer {

// Passes on to the usual allocator of the CPU. LibTorch keeps pointers to it, so there is one for ever.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static CountingAllocator allocator;
    return allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto* block = new Block{usual_->allocate(bytes), static_cast<std::int64_t>(bytes)};
    const auto now = current_ += block->bytes;
    for (auto peak = peak_.load(); now > peak && !peak_.compare_exchange_weak(peak, now);) continue;
    return {block->data.get(), block, &release, block->data.device()};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  void begin(c10::Allocator* usual) {
    usual_ = usual;
    peak_ = current_.load();
  }
  std::int64_t current() const { return current_; }
  std::int64_t peak() const { return peak_; }

 private:
  struct Block {
    c10::DataPtr data;
    std::int64_t bytes;
  };
  static void release(void* pointer) {
    auto* block = static_cast<Block*>(pointer);
    instance().current_ -= block->bytes;
    delete block;
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
