// Values that are not finite: they are named, never saved, and cause a rollback if configured. Spikes.

#include <cmath>
#include <limits>

#include "run/checkpoint_surgery.h"
#include "support/failure.h"
#include "train/trainer.h"

namespace metaformer::test_divergence {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// Whether every tensor of every checkpoint of a run is finite.
bool all_saved_are_finite(const fs::path& run) {
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    if (entry.is_symlink()) continue;
    for (const auto* name : {"model.safetensors", "state.safetensors"})
      for (const auto& [key, tensor] : from_safetensors(read_text(entry.path() / name), name))
        if (!tensor.isfinite().all().item<bool>()) return false;
  }
  return true;
}

const Overrides wild = {"train.steps=60", "train.learning_rate=1e6", "train.schedule.warmup_steps=0", "train.clip=0",
                        "train.optimizer.weight_decay=0"};

Overrides mending(const std::string& steps) {
  return {"train.eval_interval=4",
          "train.divergence.action=rollback",
          "train.divergence.action.factor=0.5",
          "train.divergence.action.limit=5",
          "train.keep_checkpoints=5",
          "train.steps=" + steps,
          "train.schedule={kind: constant, warmup_steps: 2}"};
}

// Sets weights with which every step diverges.
void doom(const fs::path& run, const std::string& checkpoint) { fill_weights(run / "checkpoints" / checkpoint, 1e30); }

std::vector<nlohmann::json> numbers(std::initializer_list<int> values) { return {values.begin(), values.end()}; }

}  // namespace

TEST_CASE(
    "a divergence is an error with step and tensor, also after the last rollback, and only finite numbers are saved",
    "[divergence]") {
  const Workplace place;
  const auto more = GENERATE(values<Overrides>(
      {{"train.precision=fp32"},
       {"train.precision=fp16", "train.steps=100", "train.eval_interval=100"},
       {"train.divergence.action={kind: rollback, factor: 1, limit: 2}", "train.learning_rate=1e30"}}));
  const auto [code, message] = failure([&] { place.train("run", joined(wild, more)); });
  CHECK(code == ExitCode::diverged);
  CHECK_THAT(message, ContainsSubstring("step ") && ContainsSubstring("is not finite") &&
                          ContainsSubstring(more[0] == "train.precision=fp16" ? "loss scale" : "train.learning_rate"));
  CHECK(all_saved_are_finite(place / "run"));
}

TEST_CASE("clipping does not spread a gradient that is not finite, so that the message can name it", "[divergence]") {
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

TEST_CASE("rollbacks lower the rate until the run ends, are counted, and can be repeated to the byte", "[divergence]") {
  const Workplace place;
  const auto more = GENERATE(values<Overrides>(
      {{}, {"train.precision=fp16", "train.weight_average.decay=0.9", "train.steps=40", "model.mixer=metric"}}));
  const auto rolled_back = joined(
      joined(wild, {"train.divergence.action={kind: rollback, factor: 1e-4, limit: 4}", "train.learning_rate=1e9"}),
      more);
  const auto summary = place.train("run", rolled_back);
  CHECK(summary["steps"] == (more.empty() ? 60 : 40));
  CHECK(summary["rollbacks"] >= 1);
  CHECK(std::isfinite(summary["val_loss"].get<double>()));
  CHECK_FALSE(metrics_of(place / "run", "rollback").empty());
  CHECK(all_saved_are_finite(place / "run"));
  place.train("again", rolled_back);
  CHECK(model_bytes(place / "run") == model_bytes(place / "again"));
}

TEST_CASE("unusually large norms are spikes, and do not change the statistics", "[spike]") {
  SpikeState state;
  for (int step = 0; step < 200; ++step) REQUIRE_FALSE(is_spike(state, 1 + 0.3 * std::sin(step * 1.7), 6));
  const auto before = state.mean;
  CHECK(is_spike(state, 100, 6));
  CHECK(is_spike(state, 1e30, 6));
  CHECK(state.mean == before);
  CHECK(state.count == 2);
  CHECK_FALSE(is_spike(state, 1.2, 6));
  CHECK_FALSE(is_spike(state, 1e-9, 6));  // a small norm is not a spike
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    CHECK_FALSE(is_spike(state, odd, 6));
    CHECK(std::isfinite(state.mean));
  }
  CHECK_FALSE(is_spike(state, 1e30, 0));
  SpikeState young;
  CHECK_FALSE(is_spike(young, 1, 6));
  CHECK_FALSE(is_spike(young, 1e6, 6));  // too early for a decision
}

TEST_CASE("a skipped spike leaves the parameters unchanged", "[spike]") {
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

TEST_CASE("every rollback goes further back, until training succeeds", "[rollback]") {
  const Workplace place;
  place.train("run", mending("12"));
  const auto run = place / "run";
  const auto doomed = GENERATE(1, 2, 3);
  const std::vector<std::string> newest_first = {"step-12", "step-8", "step-4"};
  for (int i = 0; i < doomed; ++i) doom(run, newest_first[static_cast<std::size_t>(i)]);
  const auto summary = place.train("run", mending("16"), true);
  CHECK(summary["steps"] == 16);
  CHECK(summary["rollbacks"] == doomed + 1);
  auto steps = numbers({12, 8, 4, 0}), counts = numbers({1, 2, 3, 4});
  steps.resize(static_cast<std::size_t>(doomed) + 1);
  counts.resize(steps.size());
  CHECK(field_of(run, "rollback", "step") == steps);
  CHECK(field_of(run, "rollback", "rollbacks") == counts);
  CHECK(field_of(run, "validation", "step") == numbers({4, 8, 12, 16}));
  CHECK(fs::read_symlink(run / "checkpoints/last") == "step-16");
  CHECK(fs::exists(run / "checkpoints/best/model.safetensors"));
  // The abandoned best checkpoint is kept under another name, and no doomed weights under a step's name.
  CHECK(fs::exists(run / "checkpoints/step-12.abandoned"));
  for (const auto* step : {"step-4", "step-8", "step-12", "step-16"})
    for (const auto& [name, tensor] :
         from_safetensors(read_text(run / "checkpoints" / step / "model.safetensors"), step))
      CHECK(tensor.abs().max().item<double>() < 1e6);
}

TEST_CASE("a resumed run continues after its earlier rollbacks", "[rollback]") {
  const Workplace place;
  place.train("run", mending("12"));
  const auto checkpoints = place / "run/checkpoints";
  const auto end = [&] { return place.train("run", mending("16"), true); };
  SECTION("a course that was given up is not gone on with") {
    // As if killed directly after the first checkpoint after a rollback from step 12 to step 4.
    change_meta(checkpoints / "step-8", [](Json& meta) {
      meta["rollbacks"] = 2;
      meta["rollback_step"] = 4;
    });
    doom(place / "run", "step-12");
    const auto summary = end();
    CHECK(summary["rollbacks"] == 2);
    CHECK(read_meta(checkpoints / "step-12")["rollbacks"] == 2);
    CHECK(summary["steps"] == 16);
  }
  SECTION("a rollback that the last checkpoint knows nothing of leaves no line") {
    std::ofstream(place / "run/metrics.jsonl", std::ios::app)
        << R"({"step":12,"split":"rollback","failed_step":14,"rollbacks":1})"
        << "\n";
    end();
    CHECK(field_of(place / "run", "rollback", "step").empty());
  }
  SECTION("a checkpoint that only a signal asked for is no place to go back to") {
    change_meta(checkpoints / "step-12", [](Json& meta) { meta["scheduled"] = false; });
    doom(place / "run", "step-12");
    CHECK(end()["rollbacks"] == 1);
    CHECK(field_of(place / "run", "rollback", "step") == numbers({8}));
  }
}

}  // namespace metaformer::test_divergence
