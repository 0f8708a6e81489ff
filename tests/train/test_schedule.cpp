#include <cmath>
#include <functional>
#include <numbers>

#include "support/catch.h"
#include "train/optim/learning_rate.h"

namespace metaformer {

TEST_CASE("after the last step a rate goes on, and a warm-up may be absent or longer than the training", "[schedule]") {
  TrainConfig config;
  config.steps = 1000;
  config.learning_rate = 1;
  TrapezoidScheduleConfig trapezoid;
  trapezoid.floor = 0.1;
  const auto [schedule, step, rate] = GENERATE_COPY(table<ScheduleConfig, std::int64_t, double>(
      {{CosineScheduleConfig{{.warmup_steps = 99, .floor = 0.1}}, 5000, 0.1},
       {trapezoid, 5000, 0.1},
       {InverseSqrtScheduleConfig{.warmup_steps = 25}, 5000, std::sqrt(25.0 / 5000)},
       {ConstantScheduleConfig{.warmup_steps = 5000}, 999, 1000.0 / 5001},
       {ConstantScheduleConfig{.warmup_steps = 0}, 0, 1}}));
  config.schedule = schedule;
  CHECK(scheduled_rate(config, 64, step) == Approx(rate));
}

TEST_CASE("warm-up, peak and last step of every schedule are those of the documented formulas", "[schedule]") {
  const std::int64_t w = GENERATE(1, 4), n = GENERATE(10, 37), decay = GENERATE(1, 3, 1000);
  constexpr double r = 0.5, floor = 0.125, width = 64, pi = std::numbers::pi;
  const auto steps = static_cast<double>(n), warmup = static_cast<double>(w);
  TrapezoidScheduleConfig trapezoid;
  trapezoid.warmup_steps = w;
  trapezoid.floor = floor;
  trapezoid.decay_steps = decay;
  const double f = std::max(warmup, steps - 1 - static_cast<double>(decay));
  const auto p = [&](double s) { return (s - warmup) / (steps - warmup); };
  struct Documented {
    ScheduleConfig schedule;
    std::function<double(double)> after;  // of a step after the warm-up, by docs/configs.md
    double last;                          // of the step n - 1
  };
  const std::vector<Documented> all = {
      {CosineScheduleConfig{{.warmup_steps = w, .floor = floor}},
       [&](double s) { return floor + (r - floor) * (1 + std::cos(pi * p(s))) / 2; },
       floor + (r - floor) * (1 - std::cos(pi / (steps - warmup))) / 2},
      {LinearScheduleConfig{{.warmup_steps = w, .floor = floor}},
       [&](double s) { return floor + (r - floor) * (1 - p(s)); }, floor + (r - floor) / (steps - warmup)},
      {trapezoid, [&](double s) { return s <= f ? r : floor + (r - floor) * (1 - (s - f) / (steps - 1 - f)); }, floor},
      {ConstantScheduleConfig{.warmup_steps = w}, [&](double) { return r; }, r},
      {InverseSqrtScheduleConfig{.warmup_steps = w}, [&](double s) { return r * std::sqrt(warmup / s); },
       r * std::sqrt(warmup / (steps - 1))},
      {NoamScheduleConfig{.warmup_steps = w},
       [&](double s) { return r / std::sqrt(width) * std::min(1 / std::sqrt(s + 1), (s + 1) / std::pow(warmup, 1.5)); },
       r / std::sqrt(width * steps)}};
  REQUIRE(all.size() == std::variant_size_v<ScheduleConfig>);
  TrainConfig config;
  config.steps = n;
  config.learning_rate = r;
  for (const auto& [schedule, after, last] : all) {
    CAPTURE(kind_of(schedule), w, n, decay);
    config.schedule = schedule;
    const bool is_noam = is<NoamScheduleConfig>(schedule);
    for (std::int64_t s = 0; s < n; ++s) {
      const auto step = static_cast<double>(s);
      const bool warms_up = s < w && !is_noam;
      CHECK(scheduled_rate(config, 64, s) == Approx(warms_up ? r * (step + 1) / (warmup + 1) : after(step)));
    }
    CHECK(scheduled_rate(config, 64, n - 1) == Approx(last));
    if (!is_noam) CHECK(scheduled_rate(config, 64, w) == Approx(r));
  }
}

}  // namespace metaformer
