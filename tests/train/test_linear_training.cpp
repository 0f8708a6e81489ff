// model: linear as a run like every other.

#include "base/error.h"
#include "infer/answers.h"
#include "support/failure.h"
#include "support/workplace.h"
#include "tasks/evaluation.h"
#include "tasks/make_task.h"

namespace metaformer {

namespace {

// A text is good when "not" stands right before "bad": the class follows from pairs of words only.
std::string pair_table(int rows) {
  const Rng rng(5, RandomPurpose::batches);
  std::string table = "text\tlabel\n";
  std::uint64_t drawn = 0;
  for (int i = 0; i < rows; ++i) {
    const bool good = rng.below(drawn++, 2) == 0;
    for (auto filler = rng.below(drawn++, 6); filler > 0; --filler)
      table += "word" + std::to_string(rng.below(drawn++, 30)) + " ";
    table += std::string(good ? "not bad" : "bad not") + " end" + std::to_string(i) + (good ? "\tgood\n" : "\tpoor\n");
  }
  return table;
}

Overrides linear(const Workplace& place, const Overrides& more = {}) {
  place.folder().write("table.tsv", pair_table(400));
  place.folder().write("test.tsv", pair_table(60));
  return joined({"task=classification", "data.path='" + (place / "table.tsv").string() + "'",
                 "data.test_path='" + (place / "test.tsv").string() + "'", "data.validation_fraction=0.3",
                 "data.tokenizer.kind=word", "model.context=64", "model.kind=linear", "model.buckets=4096"},
                more);
}

}  // namespace

TEST_CASE("a linear run learns pairs of words, leaves a run like any other, and is not trained again", "[linear]") {
  const Workplace place;
  const auto options = linear(place);
  const auto summary = place.train("run", options);
  const auto folder = place / "run";
  CHECK(summary["steps"] == 1);
  CHECK(summary["parameters"] == (4096 + 1) * 2);
  CHECK(summary["validation"]["accuracy"] == 1.0);
  CHECK(summary["test"]["accuracy"] == 1.0);
  CHECK(summary["test"]["texts"] == 60);
  CHECK(nlohmann::ordered_json::parse(read_text(folder / "summary.json")) == summary);
  for (const auto* file : {"config.yaml", "environment.json", "train.log", "checkpoints/step-1/model.safetensors"})
    CHECK(std::filesystem::is_regular_file(folder / file));
  for (const auto* link : {"last", "best"})
    CHECK(std::filesystem::read_symlink(folder / "checkpoints" / link) == "step-1");
  CHECK(place.train("words", linear(place, {"model.ngrams=1"}))["validation"]["accuracy"] < 0.8);
  for (const auto* split : {"train", "validation", "test"}) CHECK(metrics_of(folder, split).size() == 1);
  place.train("again", options);
  CHECK(model_bytes(folder) == model_bytes(place / "again"));
  CHECK(metrics_without_time(folder) == metrics_without_time(place / "again"));

  const auto checkpoint = folder / "checkpoints/step-1";
  const auto written = std::filesystem::last_write_time(checkpoint / "meta.json");
  CHECK(place.train("run", options, /*resume=*/true) == summary);
  std::filesystem::remove(folder / "summary.json");  // as if the process had died before it
  CHECK(place.train("run", options, /*resume=*/true)["validation"] == summary["validation"]);
  CHECK(std::filesystem::last_write_time(checkpoint / "meta.json") == written);
  auto bytes = read_text(checkpoint / "model.safetensors");  // a damaged checkpoint is not loaded
  bytes.back() ^= 1;
  std::ofstream(checkpoint / "model.safetensors", std::ios::binary) << bytes;
  CHECK(failure([&] { load_run(folder, "best", "cpu"); }).first == ExitCode::failure);
}

TEST_CASE("a linear run is evaluated and asked like a network, text by text", "[linear]") {
  const Workplace place;
  const auto summary = place.train("run", linear(place));
  const auto run = load_run(place / "run", "best", "cpu");
  const auto task = make_task(run.experiment.config, true, std::move(load_run(place / "run", "best", "cpu").codec));
  const auto metrics = evaluate_split({*run.predictor, task}, Split::validation);
  CHECK(metrics == summary["validation"]);
  CHECK(metrics["loss"] < 0.3);
  const auto good = run.codec.tokenizer->encode("word1 not bad"),
             poor = run.codec.tokenizer->encode("bad not end3 word2");
  const auto together = predict(run, {good, poor});
  CHECK(run.codec.labels[together[0].label] == "good");
  CHECK(run.codec.labels[together[1].label] == "poor");
  CHECK(predict(run, {good})[0].probabilities == together[0].probabilities);
  CHECK(predict(run, {poor})[0].probabilities == together[1].probabilities);
}

}  // namespace metaformer
