// What is not finite is named, never saved, and followed by a rollback where the config says so; spikes.

#include <cmath>
#include <limits>

#include "base/error.h"
#include "run/safetensors.h"
#include "support/failure.h"
#include "support/workplace.h"
#include "train/divergence.h"

namespace metaformer {

namespace {

// Every tensor of every checkpoint of a run.
bool all_saved_are_finite(const std::filesystem::path& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints")) {
    if (entry.is_symlink()) continue;
    for (const auto* name : {"model.safetensors", "state.safetensors"})
      for (const auto& [key, tensor] : from_safetensors(read_text(entry.path() / name), name))
        if (!tensor.isfinite().all().item<bool>()) return false;
  }
  return true;
}

int count_lines(const std::filesystem::path& run, const std::string& split) {
  std::istringstream lines(read_text(run / "metrics.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += nlohmann::json::parse(line)["split"] == split;
  return count;
}

const std::vector<std::string> wild = {"train.steps=60", "train.learning_rate=1e6", "train.schedule.warmup_steps=0",
                                       "train.clip=0", "train.optimizer.weight_decay=0"};

}  // namespace

TEST_CASE("a divergence names step and tensor, and nothing that is not finite is saved", "[divergence]") {
  const Workplace place;
  const auto [code, message] = failure([&] { place.train("run", wild); });
  CHECK(code == ExitCode::diverged);
  CHECK_THAT(message, ContainsSubstring("step ") && ContainsSubstring("is not finite") &&
                          ContainsSubstring("try a lower train.learning_rate"));
  CHECK(all_saved_are_finite(place / "run"));
}

TEST_CASE("a gradient that is not finite keeps its place for the message", "[divergence]") {
  const Workplace place;
  Parts parts(place.experiment({"train.clip=0.1"}));
  const auto& view = parts.parameters->views()[3];
  view.parameter.register_hook([](torch::Tensor gradient) {
    auto bad = gradient.clone();
    bad.flatten()[0].fill_(std::numeric_limits<double>::quiet_NaN());
    return bad;
  });
  parts.run(0, 1e-3);
  CHECK(parts.parameters->first_not_finite(parts.parameters->gradients())->name == view.name);
}

TEST_CASE("a rollback lowers the rate until the run ends, and counts", "[divergence]") {
  const Workplace place;
  auto rolled_back = wild;
  rolled_back.insert(rolled_back.end(), {"train.divergence.action=rollback", "train.divergence.action.factor=1e-4",
                                         "train.divergence.action.limit=4", "train.learning_rate=1e9"});
  const auto summary = place.train("run", rolled_back);
  CHECK(summary["steps"] == 60);
  CHECK(summary["rollbacks"].get<int>() >= 1);
  CHECK(std::isfinite(summary["val_loss"].get<double>()));
  CHECK(count_lines(place / "run", "rollback") >= 1);
  CHECK(all_saved_are_finite(place / "run"));
  // The same again to the byte: what a rollback draws depends on nothing but how many there were.
  place.train("again", rolled_back);
  CHECK(model_bytes(place / "run") == model_bytes(place / "again"));
}

TEST_CASE("rollbacks are given up after the number that the config allows", "[divergence]") {
  const Workplace place;
  auto hopeless = wild;
  hopeless.insert(hopeless.end(), {"train.divergence.action=rollback", "train.divergence.action.factor=1",
                                   "train.divergence.action.limit=2", "train.learning_rate=1e30"});
  CHECK(failure([&] { place.train("run", hopeless); }).first == ExitCode::diverged);
  CHECK(all_saved_are_finite(place / "run"));
}

TEST_CASE("norms that stand out are spikes, and teach nothing", "[spike]") {
  SpikeState state;
  for (int step = 0; step < 200; ++step) REQUIRE_FALSE(is_spike(state, 1 + 0.3 * std::sin(step * 1.7), 6));
  const auto before = state.mean;
  CHECK(is_spike(state, 100, 6));
  CHECK(is_spike(state, 1e30, 6));
  CHECK(state.mean == before);
  CHECK(state.count == 2);
  CHECK_FALSE(is_spike(state, 1.2, 6));
  CHECK_FALSE(is_spike(state, 1e-9, 6));  // a small one is none
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    CHECK_FALSE(is_spike(state, odd, 6));
    CHECK(std::isfinite(state.mean));
  }
  CHECK_FALSE(is_spike(state, 1e30, 0));
  SpikeState young;
  CHECK_FALSE(is_spike(young, 1, 6));
  CHECK_FALSE(is_spike(young, 1e6, 6));  // too early to judge
}

TEST_CASE("a skipped spike leaves the parameters as they were", "[spike]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  parts.run(0, 1e-2);
  const auto before = parts.parameters->values().clone();
  double seen = 0;
  const auto result = parts.run(1, 1e-2, [&](double norm) {
    seen = norm;
    return false;
  });
  CHECK(torch::equal(parts.parameters->values(), before));
  CHECK(seen == result.gradient_norm.item<double>());
  parts.run(1, 1e-2, [](double) { return true; });
  CHECK_FALSE(torch::equal(parts.parameters->values(), before));
}

}  // namespace metaformer
