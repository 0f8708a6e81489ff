#pragma once
// The time of every phase of a training step.

#include <array>
#include <chrono>
#include <numeric>

#include "config/schema.h"
#include "ops/device.h"

namespace metaformer {

// reduce: gradients of several processes are added up.
enum class StepPhase { batch, forward, backward, reduce, clip, update };
template <>
struct EnumNames<StepPhase> {
  static constexpr std::array<std::string_view, 6> values = {"batch",  "forward", "backward",
                                                             "reduce", "clip",    "update"};
};

struct StepTimes {
  std::array<double, EnumNames<StepPhase>::values.size()> seconds{};
  double of(StepPhase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  double total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
};

// Waits for the device between phases; without `times` does nothing.
class PhaseTimer {
 public:
  PhaseTimer(StepTimes* times, torch::Device device) : times_(times), device_(device) {
    if (times_ == nullptr) return;
    wait_for(device_);
    start_ = std::chrono::steady_clock::now();
  }

  // The phase that has run since the end of the one before.
  void end(StepPhase phase) {
    if (times_ == nullptr) return;
    wait_for(device_);
    const auto now = std::chrono::steady_clock::now();
    times_->seconds[static_cast<std::size_t>(phase)] += std::chrono::duration<double>(now - start_).count();
    start_ = now;
  }

  // Two phases that threads have run side by side since the end of the one before, with the first one's part of the
  // time.
  void end(StepPhase first, StepPhase second, double part_of_first) {
    if (times_ == nullptr) return;
    const auto before = times_->seconds[static_cast<std::size_t>(first)];
    end(first);
    auto& seconds = times_->seconds[static_cast<std::size_t>(first)];
    const auto taken = seconds - before;
    seconds = before + part_of_first * taken;
    times_->seconds[static_cast<std::size_t>(second)] += (1 - part_of_first) * taken;
  }

 private:
  StepTimes* times_;
  torch::Device device_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace metaformer
