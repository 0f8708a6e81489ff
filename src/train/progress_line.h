#pragma once
// Lines that tell how training goes: redrawn on a terminal, now and then a plain line elsewhere.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/train_config.h"

namespace metaformer {

// When the next line is due: often on a terminal, where it is redrawn, and rarely where it stays.
class LineTimer {
 public:
  using Clock = std::chrono::steady_clock;
  bool is_due() const;
  void restart() { start_ = Clock::now(); }
  bool has_run(Clock::duration time) const { return Clock::now() - start_ >= time; }

 private:
  Clock::time_point start_ = Clock::now();
};

class ProgressLine {
 public:
  ProgressLine(const TrainConfig& config, double tokens_per_step)
      : config_(config), tokens_per_step_(tokens_per_step) {}

  // The losses of `count` steps; the line shows a mean over about the last 50, the later ones weighing more.
  void add_losses(double sum, std::int64_t count);
  void add_evaluation(double seconds);

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
};

// "evaluating the validation split: batch 3 of 40", for as long as it lives.
class EvaluationLine {
 public:
  EvaluationLine(std::string_view what, std::int64_t batches);
  EvaluationLine(const EvaluationLine&) = delete;
  EvaluationLine& operator=(const EvaluationLine&) = delete;
  ~EvaluationLine();
  void show(std::int64_t batch);  // 1, 2, ...

 private:
  std::string what_;
  std::int64_t batches_;
  LineTimer timer_;
};

}  // namespace metaformer
