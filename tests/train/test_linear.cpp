// Linear classifiers: the baseline for a network, its cache, and runs with model: linear.

#include "base/digest.h"
#include "infer/answers.h"
#include "support/failure.h"
#include "support/own_cache.h"
#include "support/workplace.h"
#include "train/linear_baseline.h"

namespace metaformer::test_linear {

namespace {

using Json = nlohmann::ordered_json;

// Two thirds of the labels are "plain"; the word "rare" indicates the others.
std::string skewed_table(int rows, int first = 0) {
  std::string table = "text\tlabel\n";
  for (int i = first; i < first + rows; ++i)
    table += "text number n" + std::to_string(i) + (i % 3 == 0 ? " rare\tspecial\n" : " usual\tplain\n");
  return table;
}

struct BaselinePlace {
  BaselinePlace() {
    for (const auto& [name, rows, first] : {std::tuple("train", 90, 0), {"validation", 30, 90}, {"test", 60, 120}})
      place.folder().write(name + std::string(".tsv"), skewed_table(rows, first));
  }

  Overrides options(const Overrides& more = {}) const {
    return joined({"task=classification", "data.path='" + (place / "train.tsv").string() + "'",
                   "data.validation_path='" + (place / "validation.tsv").string() + "'",
                   "data.test_path='" + (place / "test.tsv").string() + "'", "train.steps=2", "train.eval_interval=2",
                   "model.layers=1"},
                  more);
  }

  Json find(const Overrides& more = {}) const {
    const auto config = place.experiment(options(more)).config;
    return json_of(compare_with_baselines(config, make_task(config, true).description, {}, true).accuracies);
  }

  std::vector<std::filesystem::path> cached() const {
    auto files = cache.files();
    std::erase_if(files, [](const auto& file) { return file.parent_path().filename() != "baselines"; });
    return files;
  }

  OwnCache cache;
  Workplace place;
};

const Json expected = {{"majority", {{"validation", 2.0 / 3}, {"test", 2.0 / 3}}},
                       {"linear", {{"validation", 1.0}, {"test", 1.0}}}};

// A text is good if "not" is directly before "bad", so that only pairs of words determine the class.
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

TEST_CASE("the majority class and a linear model over words are cached by the content of the data", "[baselines]") {
  const BaselinePlace at;
  CHECK(at.find() == expected);
  REQUIRE(at.cached().size() == 1);
  auto kept = Json::parse(read_text(at.cached().front()));
  kept["baselines"]["linear"]["validation"] = 0.25;  // shows that the cache is read
  kept.erase("sha256");
  kept["sha256"] = sha256(kept.dump());
  std::ofstream(at.cached().front()) << kept;
  CHECK(at.find()["linear"]["validation"] == 0.25);
  CHECK(at.find({"model.width=32"})["linear"]["validation"] == 0.25);
  CHECK(at.find({"data.cache=false"}) == expected);

  at.place.folder().write("test.tsv", skewed_table(60, 121));
  CHECK(at.find() == expected);
  CHECK(at.cached().size() == 2);
  // The network's tokens have no effect.
  CHECK(at.find({"data.tokenizer.kind=byte", "data.cache=false"}) == expected);
  CHECK(at.find({"data.test_path=null"})["linear"] == Json{{"validation", 1.0}});
}

TEST_CASE("damaged baselines in the cache are computed again and replaced", "[baselines]") {
  const BaselinePlace at;
  at.find();
  REQUIRE(at.cached().size() == 1);
  const auto file = at.cached().front();
  const auto good = read_text(file);
  auto other_key = Json::parse(good), impossible = Json::parse(good), halved = Json::parse(good),
       changed = Json::parse(good);
  changed["baselines"]["linear"]["validation"] = 0.25;  // possible, but its digest differs
  other_key["key"]["format"] = 0;
  impossible["baselines"]["linear"]["validation"] = 1.5;
  halved["baselines"].erase("majority");
  for (const auto& content : {std::string(), good.substr(0, good.size() / 2), std::string("[1]"), std::string("null"),
                              other_key.dump(), impossible.dump(), halved.dump(), changed.dump()}) {
    INFO(content);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    CHECK(at.find() == expected);
    CHECK(read_text(file) == good);
  }
}

TEST_CASE("a cache that cannot be written is no error, and baselines that cannot be computed are left out",
          "[baselines]") {
  const BaselinePlace at;
  at.cache.folder().write("metaformer", "a file where the folder should be");
  CHECK(at.find() == expected);
  const auto config = at.place.experiment(at.options()).config;
  std::filesystem::remove(at.place / "train.tsv");
  CHECK(compare_with_baselines(config, {{"train", {{"sha256", "00"}}}}, {}, true).accuracies.empty());
}

TEST_CASE("a classifier's summary has the baselines if they apply", "[baselines]") {
  const BaselinePlace at;
  CHECK(at.place.train("run", at.options())["baselines"] == expected);
  CHECK(Json::parse(read_text(at.place / "run" / "summary.json"))["baselines"] == expected);
  for (const std::string without : {"task.baselines=false", "train.overfit_batch=true"})
    CHECK_FALSE(at.place.train(without, at.options({without})).contains("baselines"));
  auto linear = at.options({"model.kind=linear", "data.tokenizer.kind=word"});
  std::erase_if(linear, [](const auto& key) { return key.starts_with("train.") || key.starts_with("model.layers"); });
  CHECK_FALSE(at.place.train("linear", linear).contains("baselines"));
}

TEST_CASE("the table of baselines has the network's accuracy and a dash for an absent split", "[baselines]") {
  const NamedScores baselines = {{"majority", {{"validation", 0.5}}}, {"linear", {{"validation", 0.91}}}};
  CHECK(baseline_table(baselines, {{"train", 0.9}}).size() == 3);
  const auto lines = baseline_table(baselines, {{"validation", 0.8712}});
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "accuracy     validation       test");
  CHECK(lines[1] == "majority         50.00%          -");
  CHECK(lines[3] == "this network     87.12%          -");
}

TEST_CASE("a linear model learns pairs of words, its run has the usual files, and it is not trained again",
          "[linear]") {
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
  std::filesystem::remove(folder / "summary.json");  // as if the process had died before writing it
  CHECK(place.train("run", options, /*resume=*/true)["validation"] == summary["validation"]);
  CHECK(std::filesystem::last_write_time(checkpoint / "meta.json") == written);
  auto bytes = read_text(checkpoint / "model.safetensors");  // a damaged checkpoint is not loaded
  bytes.back() ^= 1;
  std::ofstream(checkpoint / "model.safetensors", std::ios::binary) << bytes;
  CHECK(failure([&] { load_run(folder, "best", "cpu"); }).first == ExitCode::failure);
}

TEST_CASE("a linear model can be evaluated and predicts, independently for every text", "[linear]") {
  const Workplace place;
  const auto summary = place.train("run", linear(place));
  const auto run = load_run(place / "run", "best", "cpu");
  const auto task = make_task(run.experiment.config, true, std::move(load_run(place / "run", "best", "cpu").codec));
  const auto metrics = evaluate_split({*run.predictor, task}, Split::validation);
  CHECK(json_of(metrics) == summary["validation"]);
  CHECK(metrics.at("loss") < 0.3);
  const auto good = run.codec.tokenizer->encode("word1 not bad"),
             poor = run.codec.tokenizer->encode("bad not end3 word2");
  const auto together = predict(run, {good, poor});
  CHECK(run.codec.labels[together[0].label] == "good");
  CHECK(run.codec.labels[together[1].label] == "poor");
  CHECK(predict(run, {good})[0].probabilities == together[0].probabilities);
  CHECK(predict(run, {poor})[0].probabilities == together[1].probabilities);
}

}  // namespace metaformer::test_linear
