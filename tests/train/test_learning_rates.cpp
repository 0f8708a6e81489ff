// Schedules of the learning rate, rates by depth and by name, and frozen parameters.

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <functional>
#include <map>
#include <numbers>

#include "support/failure.h"
#include "support/workplace.h"
#include "train/optim/learning_rate.h"

namespace metaformer::test_learning_rates {

namespace {

const Overrides optimisers = {"adamw", "adam", "sgd", "{kind: sgd, momentum: 0.9}", "adagrad", "muon"};

// A training after `steps` steps, always from the same weights and with the same batches.
struct Trained {
  Trained(const Workplace& place, const Overrides& overrides, int steps = 1) : parts(place.experiment(overrides)) {
    before = parts.parameters->values().clone();
    for (int step = 0; step < steps; ++step) parts.run(step, 1e-2);
  }

  torch::Tensor update(const ParameterBuffer::View& view) const {
    return view.parameter.detach() - ParameterBuffer::part(before, view);
  }

  Parts parts;
  torch::Tensor before;
};

// Checks the rates of the parameters that `expected` names.
void check_rates(const Overrides& overrides, const std::map<std::string, double>& expected) {
  const Workplace place;
  const Trained trained(place, overrides, 0);
  std::map<std::string, double> rates;
  for (const auto& view : trained.parts.parameters->views()) rates[view.name] = view.rate;
  for (const auto& [name, rate] : expected) {
    INFO(name);
    CHECK(rates.at(name) == rate);
  }
}

}  // namespace

TEST_CASE("schedules continue after the last step, and a warm-up may be absent or longer than the training",
          "[schedule]") {
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

TEST_CASE("every schedule follows its documented formula, from warm-up to last step", "[schedule]") {
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
    std::function<double(double)> after;  // the rate after the warm-up, by docs/configs.md
    double last;                          // the rate of step n - 1
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

TEST_CASE("learning rates fall from the head to the embeddings", "[rates]") {
  check_rates({"model.layers=3", "model.embedding.tie=false", "train.layer_rate_decay=0.5"},
              {{"head.weight", 1},
               {"transformer.final_norm.weight", 1},
               {"transformer.blocks.2.feed_forward.up.weight", 0.5},
               {"transformer.blocks.1.mixer_norm.weight", 0.25},
               {"transformer.blocks.0.feed_forward.down.weight", 0.125},
               {"transformer.token_embedding.weight", 0.0625},
               {"transformer.position_embedding.weight", 0.0625}});
  check_rates({"model=lstm", "model.layers=2", "train.layer_rate_decay=0.5"},
              {{"lstm.weight_hh_l1", 0.5}, {"lstm.bias_ih_l0", 0.25}, {"token_embedding.weight", 0.125}});
}

TEST_CASE("rate factors apply to parameters by name, and by parts of names in every block", "[rates]") {
  check_rates({"model.mixer=metric", "model.embedding.tie=false", "train.layer_rate_decay=0.5",
               "train.rate_factors=[mixer.projection=0.25, head.weight=3, transformer.blocks.0.feed_forward=10, "
               "packed_metric=8]"},
              {{"head.weight", 3},
               {"transformer.final_norm.weight", 1},
               {"transformer.blocks.1.mixer.projection.weight", 0.125},
               {"transformer.blocks.1.mixer.packed_metric", 4},
               {"transformer.blocks.1.mixer.output.weight", 0.5},
               {"transformer.blocks.1.feed_forward.up.weight", 0.5},
               {"transformer.blocks.0.mixer.projection.weight", 0.0625},
               {"transformer.blocks.0.mixer.packed_metric", 2},
               {"transformer.blocks.0.feed_forward.up.weight", 2.5}});
  check_rates({"train.freeze=[transformer.blocks.0]", "train.rate_factors=[feed_forward=2]"},
              {{"transformer.blocks.0.feed_forward.up.weight", 0},  // frozen parameters stay frozen
               {"transformer.blocks.1.feed_forward.up.weight", 2},
               {"transformer.blocks.1.mixer_norm.weight", 1}});
}

TEST_CASE("a factor of the rate is a factor of the first update, decay included", "[rates]") {
  const Workplace place;
  const std::string optimiser = GENERATE(from_range(optimisers));
  const bool as_tensor = GENERATE(false, true);
  INFO(optimiser << ", tensor " << as_tensor);
  const Overrides common = {"train.optimizer=" + optimiser, "train.optimizer.weight_decay=0.3", "train.clip=0"};
  Trained plain(place, common, 0),
      layered(place,
              joined(common, {"train.layer_rate_decay=0.5",
                              "train.rate_factors=[feed_forward.up=0.3, transformer.token_embedding=2]"}),
              0);
  for (auto* trained : {&plain, &layered}) {  // a step with the same random gradients
    auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
    for (const auto& view : trained->parts.parameters->views()) view.parameter.mutable_grad().normal_(0, 1, generator);
    auto& optimizer = *trained->parts.optimizer;
    as_tensor ? optimizer.step(torch::tensor(1e-2F)) : optimizer.step(1e-2);
  }
  const auto& views = plain.parts.parameters->views();
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto& view = layered.parts.parameters->views()[i];
    INFO(view.name);
    const auto expected = view.rate * plain.update(views[i]);
    // Updates are differences of values, each rounded to float32.
    const double rounding = 0x1p-23 * view.parameter.abs().max().item<double>();
    CHECK((layered.update(view) - expected).abs().max().item<double>() <=
          2 * rounding + 1e-5 * expected.abs().max().item<double>());
    CHECK(expected.abs().max().item<double>() > 0);
  }
}

TEST_CASE("frozen parameters keep every bit and have no optimiser state, and all others change", "[rates]") {
  const Workplace place;
  const std::string optimiser = GENERATE(from_range(optimisers)), slices = GENERATE("1", "2");
  INFO(optimiser << ", slices " << slices);
  const Trained trained(
      place,
      {"train.optimizer=" + optimiser, "train.optimizer.weight_decay=0.1", "train.cpu_slices=" + slices,
       "train.freeze=[transformer.blocks.0, transformer.token_embedding]"},
      4);
  std::size_t frozen = 0;
  for (const auto& view : trained.parts.parameters->views()) {
    INFO(view.name);
    const bool freezes =
        view.name.starts_with("transformer.blocks.0.") || view.name.find("token_") != std::string::npos;
    CHECK((view.rate == 0) == freezes);
    CHECK(torch::equal(view.parameter.detach(), ParameterBuffer::part(trained.before, view)) == freezes);
    if (freezes) CHECK(view.parameter.grad().abs().max().item<double>() == 0);
    frozen += freezes ? 1 : 0;
  }
  CHECK(frozen > 4);
  for (const auto& [name, tensor] : trained.parts.optimizer->state())
    CHECK(name.find("blocks.0.") == std::string::npos);
}

TEST_CASE("unknown names, names that freeze everything, and invalid factors are errors", "[rates]") {
  const Workplace place;
  const auto [setting, code, text] = GENERATE(table<std::string, ExitCode, std::string>(
      {{"freeze=[transformer.block.0]", ExitCode::usage, "did you mean 'transformer.blocks.0'?"},
       {"freeze=[transformer.blocks.00]", ExitCode::usage, "'transformer.blocks.00': no parameter"},
       {"freeze=[transformer.bl]", ExitCode::usage, "'transformer.bl': no parameter"},  // does not end before a dot
       {"freeze=[transformer]", ExitCode::usage, "nothing to train"},
       {"freeze=[]", ExitCode::ok, ""},
       {"rate_factors=[mixer.projektion=0.1]", ExitCode::usage, "did you mean 'mixer.projection'?"},
       {"rate_factors=[mixer.proj=0.1]", ExitCode::usage, "'mixer.proj': no parameter"},
       {"rate_factors=[blocks=0.1]", ExitCode::ok, ""},
       {"rate_factors=[mixer=0.1, mixer=0.1]", ExitCode::usage, ""},
       {"rate_factors=[mixer.projection=0.1, transformer.blocks.0.mixer=2]", ExitCode::usage,
        "the parameter transformer.blocks.0.mixer.projection.weight"}}));
  CAPTURE(setting);
  const auto found = failure([&, &set = setting] { Trained(place, {"model.mixer=metric", "train." + set}, 0); });
  CHECK(found.first == code);
  CHECK_THAT(found.second, ContainsSubstring(text));
  for (const std::string entry : {"mixer", "mixer=", "=2", "mixer=0", "mixer=-1", "mixer=inf", "mixer=nan",
                                  "mixer=1e400", "mixer=2x", "mixer= 2", "mixer=x"}) {
    const auto what = message_of(ExitCode::usage, [&] { Trained(place, {"train.rate_factors=['" + entry + "']"}, 0); });
    CHECK(what.starts_with("--set train.rate_factors"));
    CHECK_THAT(what, ContainsSubstring("'" + entry + "'"));
  }
}

}  // namespace metaformer::test_learning_rates
