// Where a run that diverges goes back to, and what is left of the course that it gives up.

#include "run/checkpoint_surgery.h"
#include "run/safetensors.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

std::vector<std::string> mending(const std::string& steps) {
  return {"train.eval_interval=4",
          "train.divergence.action=rollback",
          "train.divergence.action.factor=0.5",
          "train.divergence.action.limit=5",
          "train.keep_checkpoints=5",
          "train.steps=" + steps,
          "train.schedule={kind: constant, warmup_steps: 2}"};
}

// Weights that a step cannot leave but by diverging.
void doom(const fs::path& run, const std::string& checkpoint) { fill_weights(run / "checkpoints" / checkpoint, 1e30); }

std::vector<nlohmann::json> numbers(std::initializer_list<int> values) { return {values.begin(), values.end()}; }

}  // namespace

TEST_CASE("every rollback goes further back, until the run gets on", "[rollback]") {
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
  // The best that was given up is kept aside, and nothing doomed is left under a step's name.
  CHECK(fs::exists(run / "checkpoints/step-12.abandoned"));
  for (const auto* step : {"step-4", "step-8", "step-12", "step-16"})
    for (const auto& [name, tensor] :
         from_safetensors(read_text(run / "checkpoints" / step / "model.safetensors"), step))
      CHECK(tensor.abs().max().item<double>() < 1e6);
}

TEST_CASE("a course that was given up is not gone on with", "[rollback]") {
  const Workplace place;
  place.train("run", mending("12"));
  const auto checkpoints = place / "run/checkpoints";
  // As if killed right after the first checkpoint since a rollback from step 12 to step 4.
  change_meta(checkpoints / "step-8", [](Json& meta) {
    meta["rollbacks"] = 2;
    meta["rollback_step"] = 4;
  });
  doom(place / "run", "step-12");
  const auto summary = place.train("run", mending("16"), true);
  CHECK(summary["rollbacks"] == 2);
  CHECK(read_meta(checkpoints / "step-12")["rollbacks"] == 2);
  CHECK(summary["steps"] == 16);
}

TEST_CASE("a rollback that the last checkpoint knows nothing of leaves no line", "[rollback]") {
  const Workplace place;
  place.train("run", mending("12"));
  std::ofstream(place / "run/metrics.jsonl", std::ios::app)
      << R"({"step":12,"split":"rollback","failed_step":14,"rollbacks":1})"
      << "\n";
  place.train("run", mending("16"), true);
  CHECK(field_of(place / "run", "rollback", "step").empty());
}

TEST_CASE("a checkpoint that only a signal asked for is no place to go back to", "[rollback]") {
  const Workplace place;
  place.train("run", mending("12"));
  change_meta(place / "run/checkpoints/step-12", [](Json& meta) { meta["scheduled"] = false; });
  doom(place / "run", "step-12");
  const auto summary = place.train("run", mending("16"), true);
  CHECK(field_of(place / "run", "rollback", "step") == numbers({8}));
  CHECK(summary["rollbacks"] == 1);
}

}  // namespace metaformer
