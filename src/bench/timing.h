#pragma once
// Clocks and a memory meter for benchmarks.

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/schema.h"
#include "ops/device.h"

namespace metaformer {

// Counts the bytes of tensors made while the meter lives; the tensors may outlive it. At most one meter at a time.
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

// The time from an idle device until `work` is done on it.
template <class Work>
double milliseconds_of(torch::Device device, Work work) {
  wait_for(device);
  const auto start = std::chrono::steady_clock::now();
  work();
  wait_for(device);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The median of at least one value; of an even number the upper of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How the time of work on a device is measured: by the clock on the CPU, between two events on a GPU, or as replays of
// a recorded graph if it can be recorded, so that the host's time to launch the work is not measured.
enum class TimedBy { clock, events, graph };
constexpr std::array<std::string_view, 3> enum_names(TimedBy) { return {"clock", "events", "graph"}; }

class WorkTimer {
 public:
  // `work` must have run before. It is recorded in `graph`, if there is one; tensors that it makes may then lie in the
  // graph's memory. Without a graph, or if recording fails, it is timed by events, on the CPU by the clock. Then runs
  // it to find how many calls take a millisecond.
  WorkTimer(torch::Device device, std::function<void()> work, std::unique_ptr<DeviceGraph> graph = nullptr);

  // The time of one call, as the mean over calls_per_measurement() calls. Throws Interrupted.
  double milliseconds();

  TimedBy timed_by() const;
  std::int64_t calls_per_measurement() const { return calls_; }
  const std::string& recording_problem() const { return problem_; }  // "": there is none

 private:
  double milliseconds_of_calls(std::int64_t calls);

  torch::Device device_;
  std::function<void()> work_;
  std::unique_ptr<DeviceGraph> graph_;
  std::string problem_;
  std::int64_t calls_ = 1;
};

}  // namespace metaformer
