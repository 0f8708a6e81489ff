// summary.json comes back as it was written.

#include "run/run_summary.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

RunSummary sample(bool stepwise) {
  RunSummary summary{.steps = 40,
                     .train_loss = 0.1,
                     .val_loss = 2.25,
                     .best_val_loss = 2.125,
                     .best_val_error = 0.25,
                     .best_step = 30,
                     .validation = {{"loss", 2.25}, {"texts", 7}},
                     .test = {},
                     .stopped_early = true,
                     .parameters = 1000,
                     .mixer_parameters = 300,
                     .stepwise = {},
                     .peak_memory_bytes = 1 << 20,
                     .train_seconds = 1.5,
                     .run = "/a/run",
                     .baselines = {}};
  if (stepwise)
    summary.stepwise = {.ms_per_step = 2.5,
                        .tokens_per_second = 1e6 / 3,
                        .rollbacks = 1,
                        .spikes = 2,
                        .skipped_steps = 8,
                        .seed = 3,
                        .tokens = 4,
                        .epochs = 0.5,
                        .clipped_fraction = 0.25,
                        .startup_seconds = 0.5,
                        .evaluation_seconds = 6.5,
                        .checkpoint_seconds = 0.75,
                        .wall_seconds = 7.5};
  return summary;
}

std::string keys_of(const Json& json) {
  std::string keys;
  for (const auto& [key, value] : json.items()) keys += key + " ";
  return keys;
}

}  // namespace

TEST_CASE("a summary is read back as it was written", "[summary]") {
  const TemporaryFolder folder;
  const auto run = RunDirectory::create(folder / "run");
  CHECK_FALSE(read_summary(run));
  auto summary = sample(GENERATE(true, false));
  if (GENERATE(false, true)) {
    summary.test = {{"loss", 3.5}};
    summary.baselines = {{"majority", {{"validation", 0.5}}}};
    summary.attention_collapse = {.step = 20, .kind = CollapseKind::uniform, .entropy = 0.99};
    CHECK(to_json(summary).at("attention_collapse").at("kind") == "uniform");
    if (summary.stepwise) summary.stepwise->epochs.reset();
  }
  write_summary(run, summary);
  const auto read = read_summary(run);
  REQUIRE(read);
  CHECK(to_json(*read).dump() == to_json(summary).dump());
  CHECK(Json::parse(read_text(run.summary_file())) == to_json(summary));
}

TEST_CASE("the keys of a summary have their order", "[summary]") {
  auto summary = sample(true);
  summary.baselines = {{"majority", {{"validation", 0.5}}}};
  const std::string first =
      "steps train_loss val_loss best_val_loss best_val_error best_step validation test stopped_early parameters "
      "mixer_parameters ";
  CHECK(keys_of(to_json(summary)) ==
        first +
            "ms_per_step tokens_per_second peak_memory_bytes rollbacks spikes skipped_steps seed tokens epochs "
            "clipped_fraction evaluated_tokens validation_tokens train_seconds evaluation_seconds "
            "checkpoint_seconds startup_seconds wall_seconds run baselines ");
  CHECK(keys_of(to_json(sample(false))) == first + "peak_memory_bytes train_seconds run ");
}

TEST_CASE("a summary that lacks keys is read as far as it goes", "[summary]") {
  const TemporaryFolder folder;
  const auto run = RunDirectory::create(folder / "run");
  folder.write("run/summary.json", R"({"steps": 12, "val_loss": 2.5, "validation": {"loss": 2.5}, "unknown": []})");
  const auto summary = read_summary(run);
  REQUIRE(summary);
  CHECK(summary->steps == 12);
  CHECK(summary->val_loss == 2.5);
  CHECK_FALSE(summary->stepwise);
  folder.write("run/summary.json", "[1]");
  CHECK_FALSE(read_summary(run));
}

}  // namespace metaformer
