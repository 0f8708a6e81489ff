// A run that an earlier version wrote: its config.yaml has that version's keys.

#include <cmath>

#include "cli/program.h"

namespace fs = std::filesystem;

namespace {

// The program in a folder with that run and the text it was trained on.
class Upgraded : public Program {
 public:
  Upgraded() {
    fs::copy(fs::path(METAFORMER_TESTS) / "cli/earlier_version", folder().path(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing | fs::copy_options::copy_symlinks);
  }

  nlohmann::json answer(const Arguments& arguments) const { return nlohmann::json::parse(succeed(arguments)); }
};

// What it was trained with, in today's keys.
constexpr auto today = R"(data: {path: text.txt, validation_fraction: 0.2}
model:
  {layers: 1, heads: 2, width: 8, context: 8, embedding: {tie: false},
   mixer: {kind: metric, score: distance, constraint: psd}}
train:
  {steps: 10, batch_size: 4, eval_interval: 3, checkpoint_interval: 3, log_interval: 2, keep_checkpoints: 1,
   learning_rate: 0.02, schedule: {warmup_steps: 1, floor: 2.0e-3}, optimizer: {betas: [0.8, 0.95]},
   evaluation: {kind: random, batches: 2},
   divergence: {action: {kind: rollback, limit: 4}, spikes: {threshold: 8}}}
)";

}  // namespace

TEST_CASE("a run of an earlier version is evaluated and sampled", "[runs]") {
  const Upgraded program;
  const auto metrics = program.answer({"evaluate", "--run", "run", "--json"});
  CHECK(metrics.at("step") == 6);
  CHECK(std::abs(metrics.at("loss").get<double>() - 2.842167) < 1e-4);
  const auto sample = program.answer({"sample", "--run", "run", "--prompt", "red ", "--tokens", "12", "--json"});
  CHECK(sample.at("tokens") == 12);
}

TEST_CASE("a run of an earlier version goes on with today's keys, to the numbers of that version", "[runs]") {
  const Upgraded program;
  program.folder().write("today.yaml", today);
  program.succeed({"train", "--config", "today.yaml", "--out", "run", "--resume"});
  const auto summary = nlohmann::json::parse(read_text(program.folder() / "run/summary.json"));
  CHECK(summary.at("steps") == 10);
  CHECK(std::abs(summary.at("val_loss").get<double>() - 2.773033) < 1e-3);
  const auto config = read_text(program.folder() / "run/config.yaml");
  CHECK_THAT(config, ContainsSubstring("floor: 0.002") && !ContainsSubstring("min_learning_rate"));
  // A key that differs is named by its present name.
  const auto result = program.run(
      {"train", "--config", "today.yaml", "--out", "run", "--resume", "--set", "train.optimizer.betas=[0.9, 0.99]"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("train.optimizer.betas is [0.9"));
}
