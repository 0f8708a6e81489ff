#pragma once
// Progress bar and clock of a training.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/experiment_config.h"
#include "config/train_config.h"
#include "run/checkpoint_meta.h"
#include "train/step.h"

namespace metaformer {

// The time that a run takes.
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

// Of several steps.
struct StepSums {
  double loss = 0;                                               // without the steps that were skipped
  std::int64_t steps = 0, clipped_steps = 0, skipped_steps = 0;  // `steps`: without skipped ones
  bool exhausted = false;                                        // one was skipped with the smallest loss scale
  double last_norm = 0;                                          // gradient norm of the last step
  bool last_was_skipped = false;
};

// Waits for the device. At least one result; `clip`: the largest gradient norm; 0: none.
StepSums sums_of(const std::vector<StepResult>& results, double clip);

// Progress bar.
class ProgressLine {
 public:
  ProgressLine(const TrainConfig& config, double tokens_per_step)
      : config_(config), tokens_per_step_(tokens_per_step) {}

  // The losses of `count` steps; the line shows a mean over about the last 50, the later ones weighing more.
  void add_losses(double sum, std::int64_t count);
  void add_evaluation(double seconds);

  // So far, because gradients overflowed in fp16; the line shows them when there are any.
  void set_skipped_steps(std::int64_t count) { skipped_steps_ = count; }

  // Cheap to call every step; formats only when something will be shown.
  bool is_due() const { return timer_.is_due(); }

  // `seconds_per_step`: of training only; 0 while unknown.
  void show(std::int64_t step, double learning_rate, double seconds_per_step);

  // The same for train.log only, unless it has that step.
  void record(std::int64_t step, double learning_rate, double seconds_per_step);

  // "step 20/100  loss 2.5000  lr 1.00e-03  12.3k tokens/s  ETA 12s". The time left is that of the steps and, once one
  // was timed, of the evaluations.
  std::string text(std::int64_t step, double learning_rate, double seconds_per_step) const;

 private:
  const TrainConfig& config_;
  double tokens_per_step_;
  LineTimer timer_, record_timer_;
  std::int64_t recorded_step_ = -1;
  double loss_sum_ = 0, loss_weight_ = 0;
  double evaluation_seconds_ = 0;
  std::int64_t evaluations_ = 0;
  std::int64_t skipped_steps_ = 0;
};

// "mixer metric, 4 layers, 4 heads, width 128, context 256"; "lstm, 2 layers, width 128, context 64".
std::string describe_model(const ExperimentConfig& config);

}  // namespace metaformer
