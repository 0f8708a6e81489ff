#include "train/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace metaformer {

namespace {

// Of a decay from the peak, which is held until the step `first`, down to the floor at the step `last`: from 0 to 1.
double progress_at(std::int64_t step, std::int64_t first, std::int64_t last) {
  const auto steps = std::max<std::int64_t>(1, last - first);
  return std::clamp(static_cast<double>(step - first) / static_cast<double>(steps), 0.0, 1.0);
}

double interpolated(double floor, double peak, double height) { return floor + height * (peak - floor); }

// The rate of a step, behind the warm-up of a schedule that has one of its own.
struct RateAt {
  const TrainConfig& train;
  std::int64_t width, step;

  double peak() const { return train.learning_rate; }

  double operator()(const CosineScheduleConfig& config) const {
    const double progress = progress_at(step, config.warmup_steps, train.steps);
    return interpolated(config.floor, peak(), 0.5 * (1 + std::cos(std::numbers::pi * progress)));
  }
  double operator()(const LinearScheduleConfig& config) const {
    return interpolated(config.floor, peak(), 1 - progress_at(step, config.warmup_steps, train.steps));
  }
  double operator()(const TrapezoidScheduleConfig& config) const {
    const auto last = train.steps - 1, first = std::max(config.warmup_steps, last - config.decay_steps);
    return interpolated(config.floor, peak(), 1 - progress_at(step, first, last));
  }
  double operator()(const ConstantScheduleConfig&) const { return peak(); }
  double operator()(const InverseSqrtScheduleConfig& config) const {
    return peak() * std::sqrt(static_cast<double>(config.warmup_steps) / static_cast<double>(step));
  }
  // Its steps count from 1, as in the paper.
  double operator()(const NoamScheduleConfig& config) const {
    const double s = static_cast<double>(step + 1), scale = peak() / std::sqrt(static_cast<double>(width));
    return scale * std::min(1 / std::sqrt(s), s / std::pow(static_cast<double>(config.warmup_steps), 1.5));
  }
};

}  // namespace

double scheduled_rate(const TrainConfig& config, std::int64_t width, std::int64_t step) {
  const auto warmup = warmup_steps(config.schedule);
  if (!is<NoamScheduleConfig>(config.schedule) && step < warmup)
    return config.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  return std::visit(RateAt{config, width, step}, config.schedule);
}

}  // namespace metaformer
