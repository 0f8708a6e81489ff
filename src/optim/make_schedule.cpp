#include "optim/make_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace metaformer {

namespace {

class ConstantSchedule : public Schedule {
 public:
  explicit ConstantSchedule(double peak) : peak_(peak) {}
  double rate(std::int64_t) const override { return peak_; }

 private:
  double peak_;
};

// From the peak down to a floor at the last step.
class DecaySchedule : public Schedule {
 public:
  DecaySchedule(const FallingScheduleConfig& config, const TrainConfig& train)
      : peak_(train.learning_rate),
        floor_(config.floor),
        first_(config.warmup_steps),
        steps_(std::max<std::int64_t>(1, train.steps - config.warmup_steps)) {}

  double rate(std::int64_t step) const override {
    const double progress = std::min(1.0, static_cast<double>(step - first_) / static_cast<double>(steps_));
    return floor_ + height(progress) * (peak_ - floor_);
  }

 private:
  // From 1 at progress 0 to 0 at progress 1.
  virtual double height(double progress) const = 0;

  double peak_, floor_;
  std::int64_t first_, steps_;
};

class CosineSchedule : public DecaySchedule {
  using DecaySchedule::DecaySchedule;
  double height(double progress) const override { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }
};

class LinearSchedule : public DecaySchedule {
  using DecaySchedule::DecaySchedule;
  double height(double progress) const override { return 1 - progress; }
};

class WarmUp : public Schedule {
 public:
  WarmUp(const TrainConfig& train, std::unique_ptr<const Schedule> then)
      : peak_(train.learning_rate), steps_(warmup_steps(train.schedule)), then_(std::move(then)) {}

  double rate(std::int64_t step) const override {
    if (step < steps_) return peak_ * static_cast<double>(step + 1) / static_cast<double>(steps_ + 1);
    return then_->rate(step);
  }

 private:
  double peak_;
  std::int64_t steps_;
  std::unique_ptr<const Schedule> then_;
};

// What follows the warm-up.
std::unique_ptr<const Schedule> make_course(const CosineScheduleConfig& config, const TrainConfig& train) {
  return std::make_unique<CosineSchedule>(config, train);
}
std::unique_ptr<const Schedule> make_course(const LinearScheduleConfig& config, const TrainConfig& train) {
  return std::make_unique<LinearSchedule>(config, train);
}
std::unique_ptr<const Schedule> make_course(const ConstantScheduleConfig&, const TrainConfig& train) {
  return std::make_unique<ConstantSchedule>(train.learning_rate);
}

}  // namespace

std::unique_ptr<const Schedule> make_schedule(const TrainConfig& config) {
  auto course = std::visit([&](const auto& schedule) { return make_course(schedule, config); }, config.schedule);
  return std::make_unique<WarmUp>(config, std::move(course));
}

}  // namespace metaformer
