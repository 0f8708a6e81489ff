// The baselines beside a classifier, and their cache.

#include "base/digest.h"
#include "support/own_cache.h"
#include "support/workplace.h"
#include "tasks/make_task.h"
#include "train/linear_baseline.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

// Two thirds are "plain"; the word "rare" tells the others.
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
    return compare_with_baselines(config, make_task(config, true).description, {}, true).accuracies;
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

}  // namespace

TEST_CASE("the majority class and a linear model over words are kept, by the content of the data", "[baselines]") {
  const BaselinePlace at;
  CHECK(at.find() == expected);
  REQUIRE(at.cached().size() == 1);
  auto kept = Json::parse(read_text(at.cached().front()));
  kept["baselines"]["linear"]["validation"] = 0.25;  // to see that it is read
  kept.erase("sha256");
  kept["sha256"] = sha256(kept.dump());
  std::ofstream(at.cached().front()) << kept;
  CHECK(at.find()["linear"]["validation"] == 0.25);
  CHECK(at.find({"model.width=32"})["linear"]["validation"] == 0.25);
  CHECK(at.find({"data.cache=false"}) == expected);

  at.place.folder().write("test.tsv", skewed_table(60, 121));
  CHECK(at.find() == expected);
  CHECK(at.cached().size() == 2);
  // Whatever the network's tokens are.
  CHECK(at.find({"data.tokenizer.kind=byte", "data.cache=false"}) == expected);
  CHECK(at.find({"data.test_path=null"})["linear"] == Json{{"validation", 1.0}});
}

TEST_CASE("a damaged cache is computed anew and replaced", "[baselines]") {
  const BaselinePlace at;
  at.find();
  REQUIRE(at.cached().size() == 1);
  const auto file = at.cached().front();
  const auto good = read_text(file);
  auto other_key = Json::parse(good), impossible = Json::parse(good), halved = Json::parse(good),
       changed = Json::parse(good);
  changed["baselines"]["linear"]["validation"] = 0.25;  // possible, but not what the digest is of
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

TEST_CASE("a cache that cannot be written stops nothing, and baselines that cannot be computed are left out",
          "[baselines]") {
  const BaselinePlace at;
  at.cache.folder().write("metaformer", "a file where the folder should be");
  CHECK(at.find() == expected);
  const auto config = at.place.experiment(at.options()).config;
  std::filesystem::remove(at.place / "train.tsv");
  CHECK(compare_with_baselines(config, {{"train", {{"sha256", "00"}}}}, {}, true).accuracies.is_null());
}

TEST_CASE("a classifier's summary holds the baselines where they apply", "[baselines]") {
  const BaselinePlace at;
  CHECK(at.place.train("run", at.options())["baselines"] == expected);
  CHECK(Json::parse(read_text(at.place / "run" / "summary.json"))["baselines"] == expected);
  for (const std::string without : {"task.baselines=false", "train.overfit_batch=true"})
    CHECK_FALSE(at.place.train(without, at.options({without})).contains("baselines"));
  auto linear = at.options({"model.kind=linear", "data.tokenizer.kind=word"});
  std::erase_if(linear, [](const auto& key) { return key.starts_with("train.") || key.starts_with("model.layers"); });
  CHECK_FALSE(at.place.train("linear", linear).contains("baselines"));
}

TEST_CASE("the table of baselines", "[baselines]") {
  const auto lines = baseline_table({{"majority", {{"validation", 0.5}}}, {"linear", {{"validation", 0.91}}}},
                                    {{"validation", {{"accuracy", 0.8712}}}, {"test", nullptr}});
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "accuracy     validation       test");
  CHECK(lines[1] == "majority         50.00%          -");
  CHECK(lines[3] == "this network     87.12%          -");
}

}  // namespace metaformer
