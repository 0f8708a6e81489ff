#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace metaformer {

double learning_rate_at(const TrainConfig& config, std::int64_t step) {
  const double peak = config.learning_rate, floor = config.min_learning_rate;
  if (step < config.warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps + 1);
  if (config.schedule == ScheduleKind::constant) return peak;
  const auto decay_steps = std::max<std::int64_t>(1, config.steps - config.warmup_steps);
  const double progress =
      std::min(1.0, static_cast<double>(step - config.warmup_steps) / static_cast<double>(decay_steps));
  const double share =
      config.schedule == ScheduleKind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return floor + share * (peak - floor);
}

}  // namespace metaformer
