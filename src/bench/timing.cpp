#include "bench/timing.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/signals.h"

namespace metaformer {

namespace {

// Counts the bytes that it takes from the usual allocator of the CPU. The size of a block is stored in front of it,
// because LibTorch frees a block by its address, without its size. Blocks may outlive any meter, so there is one
// instance for the whole program.
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
  static constexpr std::size_t front = 64;  // keeps the alignment of the block

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

struct Bytes {
  std::int64_t current, peak;
};
Bytes bytes_on(torch::Device device) {
  if (device.is_cpu()) return {CountingAllocator::instance().current(), CountingAllocator::instance().peak()};
  const auto total = at::accelerator::getDeviceStats(device.index()).allocated_bytes[0];
  return {total.current, total.peak};
}

// The time from the start of `work` on the device, after earlier work, to its end there.
double milliseconds_between_events(torch::Device device, const std::function<void()>& work) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  c10::Event start(device.type(), c10::EventFlag::BACKEND_DEFAULT), end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  start.record(guard.getStream(device));
  work();
  end.record(guard.getStream(device));
  end.synchronize();
  return start.elapsedTime(end);
}

}  // namespace

MemoryMeter::MemoryMeter(torch::Device device) : device_(device) {
  if (device.is_cpu()) {
    usual_ = c10::GetCPUAllocator();
    CountingAllocator::instance().begin(usual_);
    c10::SetCPUAllocator(&CountingAllocator::instance());
  } else {
    at::accelerator::resetPeakStats(device.index());
  }
  base_bytes_ = bytes_on(device).current;
}

MemoryMeter::~MemoryMeter() {
  if (usual_ != nullptr) c10::SetCPUAllocator(usual_);
}

std::int64_t MemoryMeter::current_bytes() const { return bytes_on(device_).current - base_bytes_; }
std::int64_t MemoryMeter::peak_bytes() const { return bytes_on(device_).peak - base_bytes_; }

WorkTimer::WorkTimer(torch::Device device, std::function<void()> work, std::unique_ptr<DeviceGraph> graph)
    : device_(device), work_(std::move(work)) {
  try {
    if (graph != nullptr) graph->capture(work_);
    graph_ = std::move(graph);
  } catch (const c10::Error& error) {
    problem_ = first_line(error);
  }
  constexpr double measurement_ms = 1, most_calls = 1000;
  milliseconds_of_calls(1);  // the first call of a graph takes longer
  const double calls = std::ceil(measurement_ms / milliseconds_of_calls(1));
  calls_ = static_cast<std::int64_t>(std::clamp(calls, 1.0, most_calls));
}

double WorkTimer::milliseconds() { return milliseconds_of_calls(calls_); }

TimedBy WorkTimer::timed_by() const {
  if (graph_ != nullptr) return TimedBy::graph;
  return device_.is_cpu() ? TimedBy::clock : TimedBy::events;
}

double WorkTimer::milliseconds_of_calls(std::int64_t calls) {
  throw_if_stopped();
  const auto all = [&] {
    for (std::int64_t i = 0; i < calls; ++i) graph_ != nullptr ? graph_->replay() : work_();
  };
  const double ms = device_.is_cpu() ? milliseconds_of(device_, all) : milliseconds_between_events(device_, all);
  return ms / static_cast<double>(calls);
}

}  // namespace metaformer
