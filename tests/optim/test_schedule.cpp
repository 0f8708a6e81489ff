#include <cmath>
#include <numbers>

#include "optim/make_schedule.h"
#include "support/catch.h"

namespace metaformer {

static double learning_rate_at(const TrainConfig& config, std::int64_t step) {
  return make_schedule(config)->rate(step);
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

}  // namespace metaformer
