#include "train/progress_line.h"

#include <fmt/format.h>

#include <cmath>

#include "base/log.h"
#include "base/text.h"

namespace metaformer {

using namespace std::chrono_literals;

static constexpr auto line_interval = 5s;  // of lines of train.log

void ProgressLine::add_losses(double sum, std::int64_t count) {
  constexpr double kept_per_step = 0.98;
  if (count == 0) return;
  const double kept = std::pow(kept_per_step, count);
  loss_sum_ = kept * loss_sum_ + (1 - kept) * sum / static_cast<double>(count);
  loss_weight_ = kept * loss_weight_ + (1 - kept);
}

void ProgressLine::add_evaluation(double seconds) {
  evaluation_seconds_ += seconds;
  ++evaluations_;
}

std::int64_t ProgressLine::evaluations_after(std::int64_t step) const {
  const auto up_to = [&](std::int64_t last) { return last / config_.eval_interval; };
  const bool ends_with_another = config_.steps % config_.eval_interval != 0;
  return up_to(config_.steps) - up_to(step) + (step < config_.steps && ends_with_another ? 1 : 0);
}

std::string ProgressLine::text(std::int64_t step, double learning_rate, double seconds_per_step) const {
  auto line = fmt::format("step {}/{}", step, config_.steps);
  if (loss_weight_ > 0) line += fmt::format("  loss {:.4f}", loss_sum_ / loss_weight_);
  line += fmt::format("  lr {:.2e}", learning_rate);
  if (skipped_steps_ > 0) line += fmt::format("  {} skipped", skipped_steps_);
  if (seconds_per_step <= 0) return line;
  const double per_evaluation = evaluations_ > 0 ? evaluation_seconds_ / static_cast<double>(evaluations_) : 0;
  const double left = seconds_per_step * static_cast<double>(config_.steps - step) +
                      per_evaluation * static_cast<double>(evaluations_after(step));
  return line +
         fmt::format("  {} tokens/s  ETA {}", human_count(tokens_per_step_ / seconds_per_step), human_duration(left));
}

void ProgressLine::show(std::int64_t step, double learning_rate, double seconds_per_step) {
  timer_.restart();
  show_progress(text(step, learning_rate, seconds_per_step));
  if (!log::stderr_is_terminal()) {
    recorded_step_ = step;
  } else if (record_timer_.has_run(line_interval)) {
    record(step, learning_rate, seconds_per_step);
  }
}

void ProgressLine::record(std::int64_t step, double learning_rate, double seconds_per_step) {
  if (loss_weight_ == 0 || step == recorded_step_) return;
  recorded_step_ = step;
  record_timer_.restart();
  log::record(text(step, learning_rate, seconds_per_step));
}

}  // namespace metaformer
