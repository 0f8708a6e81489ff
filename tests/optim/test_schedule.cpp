#include <cmath>
#include <numbers>

#include "optim/make_schedule.h"
#include "support/catch.h"

namespace metaformer {

static double learning_rate_at(const TrainConfig& config, std::int64_t step) {
  return make_schedule(config, 64)->rate(step);
}

TEST_CASE("learning rates follow their formulas", "[schedule]") {
  TrainConfig config;
  config.steps = 1000;
  config.learning_rate = 1;
  config.schedule = CosineScheduleConfig{{.warmup_steps = 99, .floor = 0.1}};
  CHECK(learning_rate_at(config, 0) == Approx(0.01));
  CHECK(learning_rate_at(config, 98) == Approx(0.99));
  CHECK(learning_rate_at(config, 99) == Approx(1));
  CHECK(learning_rate_at(config, 999) == Approx(0.1 + 0.45 * (1 + std::cos(std::numbers::pi * 900 / 901))));
  CHECK(learning_rate_at(config, 5000) == Approx(0.1));
  config.schedule = LinearScheduleConfig{{.warmup_steps = 99, .floor = 0.1}};
  CHECK(learning_rate_at(config, 99 + 901 / 2) == Approx(0.55).epsilon(0.01));
  config.schedule = ConstantScheduleConfig{.warmup_steps = 99};
  CHECK(learning_rate_at(config, 999) == 1);
  config.schedule = ConstantScheduleConfig{.warmup_steps = 5000};  // beyond the end is legal
  CHECK(learning_rate_at(config, 999) == Approx(1000.0 / 5001));
  config.schedule = ConstantScheduleConfig{.warmup_steps = 0};
  CHECK(learning_rate_at(config, 0) == 1);
}

TEST_CASE("schedules that fall with the square root of the step follow their formulas", "[schedule]") {
  TrainConfig config;
  config.steps = 1000;
  config.learning_rate = 0.5;
  config.schedule = InverseSqrtScheduleConfig{.warmup_steps = 25};
  CHECK(learning_rate_at(config, 0) == Approx(0.5 / 26));
  CHECK(learning_rate_at(config, 24) == Approx(0.5 * 25 / 26));
  CHECK(learning_rate_at(config, 25) == Approx(0.5));
  CHECK(learning_rate_at(config, 100) == Approx(0.5 * std::sqrt(25.0 / 100)));
  CHECK(learning_rate_at(config, 5000) == Approx(0.5 * std::sqrt(25.0 / 5000)));
  // Vaswani et al. 2017 with d = 64, w = 16: steps count from 1, and the largest rate is that of step 16.
  config.schedule = NoamScheduleConfig{.warmup_steps = 16};
  CHECK(learning_rate_at(config, 0) == Approx(0.5 / 8 / 64));
  CHECK(learning_rate_at(config, 3) == Approx(0.5 / 8 * 4 / 64));
  CHECK(learning_rate_at(config, 15) == Approx(0.5 / 8 / 4));
  CHECK(learning_rate_at(config, 99) == Approx(0.5 / 8 / 10));
}

TEST_CASE("a trapezoid holds its peak and then falls to the floor", "[schedule]") {
  TrainConfig config;
  config.steps = 1000;
  config.learning_rate = 1;
  TrapezoidScheduleConfig trapezoid;
  trapezoid.warmup_steps = 9;
  trapezoid.floor = 0.2;
  trapezoid.decay_steps = 100;
  config.schedule = trapezoid;
  CHECK(learning_rate_at(config, 4) == Approx(0.5));
  CHECK(learning_rate_at(config, 9) == 1);
  CHECK(learning_rate_at(config, 900) == 1);
  CHECK(learning_rate_at(config, 925) == Approx(0.8));
  CHECK(learning_rate_at(config, 999) == Approx(1 - 0.8 * 0.99));
  CHECK(learning_rate_at(config, 2000) == Approx(0.2));
  trapezoid.decay_steps = 5000;  // more than follow the warm-up: there is no plateau
  config.schedule = trapezoid;
  CHECK(learning_rate_at(config, 9) == 1);
  CHECK(learning_rate_at(config, 9 + 991 / 2) == Approx(0.6).epsilon(0.01));
}

}  // namespace metaformer
