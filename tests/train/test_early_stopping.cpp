// train.patience ends a run whose validation loss no longer falls, and ends it alike however often it was interrupted.

#include "run/checkpoint_surgery.h"

namespace metaformer {

namespace {

// Evaluated after every step, with a step so large that the loss soon stops falling.
Overrides impatient(const std::string& patience, const std::string& mode = "whole") {
  return {"train.steps=400",
          "train.eval_interval=2",
          "train.checkpoint_interval=3",
          "train.patience=" + patience,
          "train.learning_rate=0.3",
          "train.schedule={kind: constant, warmup_steps: 2}",
          "train.evaluation=" + mode,
          "model.dropout=0.1",
          mode == "random" ? "train.evaluation.batches=2" : "train.log_interval=3"};
}

}  // namespace

TEST_CASE("training ends after as many evaluations without a better loss as the config allows", "[patience]") {
  const Workplace place;
  const auto summary = place.train("run", impatient("3"));
  const auto steps = summary["steps"].get<std::int64_t>();
  REQUIRE(steps < 400);
  CHECK(summary["stopped_early"] == true);
  std::vector<double> losses;
  for (const auto& line : metrics_of(place / "run", "validation")) losses.push_back(line["loss"]);
  REQUIRE(std::ssize(losses) == steps / 2);
  const auto best = std::min_element(losses.begin(), losses.end());
  CHECK(losses.end() - best == 4);  // the best and three more
  CHECK(summary["best_val_loss"] == *best);
  CHECK(summary["best_step"] == (best - losses.begin() + 1) * 2);
  CHECK(summary["val_loss"] == losses.back());
  for (const auto& [link, step] : {std::pair("last", steps), {"best", summary["best_step"].get<std::int64_t>()}})
    CHECK(std::filesystem::read_symlink(place / "run/checkpoints" / link) == fmt::format("step-{}", step));
  const auto patient = place.train("patient", joined(impatient("0"), {fmt::format("train.steps={}", steps + 4)}));
  CHECK((patient["steps"] == steps + 4 && patient["stopped_early"] == false));
}

TEST_CASE("a run ends early at the same step however often it was interrupted, and goes on with more patience",
          "[patience]") {
  const Workplace place;
  const auto mode = GENERATE("whole", "random");
  const auto whole = place.train("whole", impatient("4", mode));
  const auto steps = whole["steps"].get<std::int64_t>();
  REQUIRE(steps < 400);
  CHECK(whole["stopped_early"] == true);
  CHECK(whole["val_loss"] == metrics_of(place / "whole", "validation").back()["loss"]);  // of the whole split
  // As if the process had died within the last evaluations.
  copy_run(place / "whole", place / "cut");
  forget_end(place / "cut", {fmt::format("step-{}", steps), "last", "best"});
  CHECK(place.train("cut", impatient("4", mode), true)["steps"] == steps);
  CHECK(model_bytes(place / "cut") == model_bytes(place / "whole"));
  CHECK(metrics_without_time(place / "cut") == metrics_without_time(place / "whole"));

  CHECK(place.train("whole", impatient("4", mode), true) == whole);  // finished
  CHECK(place.train("whole", impatient("6", mode), true)["steps"] > steps);
  place.train("longer", impatient("6", mode));
  CHECK(model_bytes(place / "whole") == model_bytes(place / "longer"));
  CHECK(metrics_without_time(place / "whole") == metrics_without_time(place / "longer"));
}

}  // namespace metaformer
