#pragma once
// A line that tells how training goes.

#include <cstdint>
#include <string>

#include "base/line_timer.h"
#include "config/train_config.h"

namespace metaformer {

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
  std::int64_t evaluations_after(std::int64_t step) const;

  const TrainConfig& config_;
  double tokens_per_step_;
  LineTimer timer_, record_timer_;
  std::int64_t recorded_step_ = -1;
  double loss_sum_ = 0, loss_weight_ = 0;
  double evaluation_seconds_ = 0;
  std::int64_t evaluations_ = 0;
  std::int64_t skipped_steps_ = 0;
};

}  // namespace metaformer
