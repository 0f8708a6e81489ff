#include "train/optim/schedule.h"

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

// From the peak, which it holds until the step `first`, down to the floor at the step `last`.
class DecaySchedule : public Schedule {
 public:
  DecaySchedule(const FallingScheduleConfig& config, double peak, std::int64_t first, std::int64_t last)
      : peak_(peak), floor_(config.floor), first_(first), steps_(std::max<std::int64_t>(1, last - first)) {}

  double rate(std::int64_t step) const override {
    const double progress = std::clamp(static_cast<double>(step - first_) / static_cast<double>(steps_), 0.0, 1.0);
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

class InverseSqrtSchedule : public Schedule {
 public:
  InverseSqrtSchedule(double peak, std::int64_t first) : peak_(peak), first_(static_cast<double>(first)) {}
  double rate(std::int64_t step) const override { return peak_ * std::sqrt(first_ / static_cast<double>(step)); }

 private:
  double peak_, first_;
};

// Its steps count from 1, as in the paper.
class NoamSchedule : public Schedule {
 public:
  NoamSchedule(double factor, std::int64_t width, std::int64_t warmup_steps)
      : scale_(factor / std::sqrt(static_cast<double>(width))), warmup_steps_(static_cast<double>(warmup_steps)) {}

  double rate(std::int64_t step) const override {
    const double s = static_cast<double>(step + 1);
    return scale_ * std::min(1 / std::sqrt(s), s / std::pow(warmup_steps_, 1.5));
  }

 private:
  double scale_, warmup_steps_;
};

class WarmUp : public Schedule {
 public:
  WarmUp(double peak, std::int64_t steps, std::unique_ptr<const Schedule> then)
      : peak_(peak), steps_(steps), then_(std::move(then)) {}

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
  return std::make_unique<CosineSchedule>(config, train.learning_rate, config.warmup_steps, train.steps);
}
std::unique_ptr<const Schedule> make_course(const LinearScheduleConfig& config, const TrainConfig& train) {
  return std::make_unique<LinearSchedule>(config, train.learning_rate, config.warmup_steps, train.steps);
}
std::unique_ptr<const Schedule> make_course(const TrapezoidScheduleConfig& config, const TrainConfig& train) {
  const auto last = train.steps - 1;
  return std::make_unique<LinearSchedule>(config, train.learning_rate,
                                          std::max(config.warmup_steps, last - config.decay_steps), last);
}
std::unique_ptr<const Schedule> make_course(const ConstantScheduleConfig&, const TrainConfig& train) {
  return std::make_unique<ConstantSchedule>(train.learning_rate);
}
std::unique_ptr<const Schedule> make_course(const InverseSqrtScheduleConfig& config, const TrainConfig& train) {
  return std::make_unique<InverseSqrtSchedule>(train.learning_rate, config.warmup_steps);
}

template <class Config>
std::unique_ptr<const Schedule> make(const Config& config, const TrainConfig& train, std::int64_t) {
  return std::make_unique<WarmUp>(train.learning_rate, warmup_steps(train.schedule), make_course(config, train));
}
std::unique_ptr<const Schedule> make(const NoamScheduleConfig& config, const TrainConfig& train, std::int64_t width) {
  return std::make_unique<NoamSchedule>(train.learning_rate, width, config.warmup_steps);
}

}  // namespace

std::unique_ptr<const Schedule> make_schedule(const TrainConfig& config, std::int64_t width) {
  return std::visit([&](const auto& schedule) { return make(schedule, config, width); }, config.schedule);
}

}  // namespace metaformer
