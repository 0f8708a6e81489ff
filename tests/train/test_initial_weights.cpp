// train.init_from: what a training begins with.

#include <algorithm>
#include <regex>

#include "base/json.h"
#include "ops/named_tensors.h"
#include "support/failure.h"
#include "tasks/task_examples.h"
#include "train/initial_weights.h"

namespace metaformer {

namespace {

const Overrides words = {"data.tokenizer={kind: word, whitespace: kept, min_count: 1}", "model.embedding.tie=true"};

// The weights of a run's checkpoint by name.
std::map<std::string, torch::Tensor> weights_of(const std::filesystem::path& run, const std::string& checkpoint) {
  const auto loaded = load_checkpoint(RunDirectory::open(run), checkpoint, WithOptimizer::no);
  return {loaded.model.begin(), loaded.model.end()};
}

nlohmann::json report_of(const std::filesystem::path& run) {
  return nlohmann::json::parse(read_text(run / "initial_weights.json"));
}

bool has(const nlohmann::json& names, const std::string& name) {
  return std::count(names.begin(), names.end(), name) > 0;
}

// A rate at which no weight moves.
const Overrides still = {"train.learning_rate=1e-30", "train.optimizer.weight_decay=0", "train.schedule=constant",
                         "train.steps=1"};

std::string from(const std::filesystem::path& source) { return "train.init_from='" + source.string() + "'"; }

}  // namespace

TEST_CASE("a run begins with the best weights of another one", "[init_from]") {
  const Workplace place;
  place.train("first", {"train.learning_rate=0.01"});
  place.train("second", joined(still, {from(place / "first"), "train.seed=5"}));
  const auto before = weights_of(place / "first", "best"), after = weights_of(place / "second", "last");
  CHECK(before.size() == after.size());
  for (const auto& [name, tensor] : before) CHECK(torch::equal(tensor, after.at(name)));
  const auto report = report_of(place / "second");
  CHECK(report["taken"].size() == before.size());
  CHECK(report["new"].empty());
  CHECK(report["left"].empty());
  CHECK(report["sha256"].get<std::string>().size() == 64);
  // Or with those of one of its checkpoints, or of another run for every seed.
  place.train("third", joined(still, {from(place / "first/checkpoints/step-8")}));
  CHECK(torch::equal(weights_of(place / "third", "last").begin()->second,
                     weights_of(place / "first", "step-8").begin()->second));
  std::filesystem::rename(place / "first", place / "first-5");
  place.train("fourth", joined(still, {from(place / "first-{seed}"), "train.seed=5"}));
  CHECK(torch::equal(weights_of(place / "fourth", "last").begin()->second, before.begin()->second));
}

TEST_CASE("a language model becomes a classifier of the same tokens", "[init_from][classification]") {
  const Workplace place;
  place.train("language_model", joined(words, {"train.learning_rate=0.01", "model.layers=1"}));
  const auto tokenizer = read_text(place / "language_model/checkpoints/best/tokenizer.json");
  const std::string head = GENERATE("mean_pooled", "first_token");
  place.train("classifier", classifier(place, joined(still, {from(place / "language_model"), "task.head=" + head})));
  CHECK(read_text(place / "classifier/checkpoints/last/tokenizer.json") == tokenizer);
  const auto before = weights_of(place / "language_model", "best"), after = weights_of(place / "classifier", "last");
  const auto report = report_of(place / "classifier");
  CHECK(has(report["new"], "head.weight"));
  CHECK(has(report["new"], "head.bias"));
  for (const auto& [name, tensor] : before) {
    INFO(name);
    const auto rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    CHECK(torch::equal(after.at(name).narrow(0, 0, rows), tensor));  // a class token comes behind
  }
  // The row of the class token, and the position that it adds.
  CHECK(report["taken_in_part"].size() == (head == "first_token" ? 2 : 0));
  CHECK(read_text(place / "classifier/config.yaml").find("kind: word") != std::string::npos);
}

TEST_CASE("the head of a classifier goes to one with the same classes", "[init_from][classification]") {
  const Workplace place;
  place.train("first", classifier(place, {"train.learning_rate=0.01", "train.steps=4"}));
  place.train("same", classifier(place, joined(still, {from(place / "first")})));
  CHECK(has(report_of(place / "same")["taken"], "head.weight"));
  place.folder().write("other.tsv", std::regex_replace(marked_table(1500), std::regex("good"), "best"));
  const auto path = "data.path='" + (place / "other.tsv").string() + "'";
  place.train("other", classifier(place, joined(still, {from(place / "first"), path})));
  const auto report = report_of(place / "other");
  CHECK(has(report["new"], "head.weight"));
  CHECK(has(report["left"], "head.weight"));
}

TEST_CASE("a longer context keeps the positions that were trained, and another mixer is new", "[init_from]") {
  const Workplace place;
  place.train("first", {"train.steps=2", "model.mixer=scaled_dot_product"});
  place.train("second", joined(still, {from(place / "first"), "model.context=24", "model.mixer=average_pooling"}));
  const auto name = "transformer.position_embedding.weight";
  CHECK(torch::equal(weights_of(place / "second", "last").at(name).narrow(0, 0, 16),
                     weights_of(place / "first", "best").at(name)));
  const auto report = report_of(place / "second");
  CHECK(report["taken_in_part"] == nlohmann::json::array({"transformer.position_embedding.weight (16 of 24 rows)"}));
  CHECK(report["new"].empty());
  CHECK(report["left"].size() == 4);  // two layers with a projection and an output each
  CHECK(has(report["taken"], "transformer.blocks.1.feed_forward.up.weight"));
}

TEST_CASE("a run with initial weights resumes to the byte without them", "[init_from]") {
  const Workplace place;
  place.train("source", joined(words, {"train.steps=3"}));
  const auto steps = [&](const std::string& count) {
    return Overrides{from(place / "source"), "train.steps=" + count,
                     "train.schedule={kind: constant, warmup_steps: 2}"};
  };
  place.train("whole", steps("12"));
  place.train("cut", steps("5"));
  std::filesystem::remove_all(place / "source");
  place.train("cut", steps("12"), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
}

TEST_CASE("what a training cannot begin with is one clear error", "[init_from]") {
  const Workplace place;
  place.train("source", joined(words, {"train.steps=1"}));
  const auto table = classifier(place).at(1);  // data.path
  place.train("linear", {"task=classification", table, "model=linear"});
  for (const auto& [overrides, text] : std::vector<std::pair<Overrides, std::string>>{
           {{from(place / "nowhere")}, "no run (config.yaml), checkpoint (meta.json) or Hugging Face folder"},
           {{"model.width=32"}, "model.width is 32 here and 16 there"},
           {{"data.tokenizer=byte"}, "tokenizer (word)"},
           {sorter(), "task sort"},
           {classifier(place, {from(place / "linear")}), "a linear model"}}) {
    const auto all = joined({from(place / "source")}, overrides);
    CHECK_THAT(message_of(ExitCode::usage, [&] { place.train("target", all); }), ContainsSubstring(text));
    CHECK_FALSE(std::filesystem::exists(place / "target"));
  }
  // The same tokenizer may be written, too.
  CHECK_NOTHROW(place.train("same", joined(joined(words, still), {from(place / "source")})));
}

TEST_CASE("keys that change what a model computes are named, others are not", "[init_from]") {
  const Workplace place;
  const auto here = place.experiment({"model.heads=4", "model.dropout=0.3", "model.norm.epsilon=1e-6"}).config;
  const auto there = place.experiment({"model.context=8"}).config;
  CHECK(differing_model_keys(here, there) ==
        Overrides{"model.heads is 4 here and 2 there", "model.norm.epsilon is 1.0e-06 here and 1.0e-05 there"});
  const auto untied = place.experiment({"model.embedding.tie=false"}).config;
  CHECK(differing_model_keys(place.experiment({}).config, untied).size() == 1);
  CHECK(differing_model_keys(place.experiment(classifier(place, {"model.layers=2"})).config, untied).empty());
}

}  // namespace metaformer
