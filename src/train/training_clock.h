#pragma once
// The time that a run takes.

#include <chrono>

#include "run/progress.h"

namespace metaformer {

class TrainingClock {
 public:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Starts where a run goes on from `progress`.
  explicit TrainingClock(const Progress& progress)
      : first_step_(progress.step), earlier_wall_seconds_(progress.wall_seconds) {}

  std::int64_t first_step() const { return first_step_; }  // of this process

  // Since `start` this process has trained.
  void count(Progress& progress, Clock::time_point start) {
    if (progress.step > first_step_ + 1) session_seconds_ += seconds_since(start);
    progress.train_seconds += seconds_since(start);
  }

  // Of training, in this process, without its first step; 0 while unknown.
  double seconds_per_step(std::int64_t step) const {
    const auto timed_steps = step - first_step_ - 1;
    return timed_steps > 0 ? session_seconds_ / static_cast<double>(timed_steps) : 0;
  }

  // Of all processes that trained the run.
  double wall_seconds() const { return earlier_wall_seconds_ + seconds_since(start_); }

 private:
  std::int64_t first_step_;
  double earlier_wall_seconds_;
  double session_seconds_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace metaformer
