// Checkpoints of a run and resuming from them; damaged, unfinished and newer checkpoints. meta.json is read back as
// written, and impossible values in it are refused.

#include <map>

#include "base/random.h"
#include "run/checkpoint_meta.h"
#include "run/checkpoint_surgery.h"
#include "support/failure.h"

namespace metaformer::test_checkpoints {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

using Json = nlohmann::ordered_json;

const Json sample = Json::parse(R"({"format_version": 2, "step": 40, "best": {"step": 30, "loss": 2.25, "error": 0.125},
  "loss_sum": 4.5, "loss_count": 2, "last_train_loss": 0.1, "train_seconds": 1.5, "evaluated_step": 40,
  "validation": {"loss": 2.3, "targets": 100}, "evaluations_since_best": 1, "rollbacks": 2, "rollback_step": 20,
  "scheduled": false, "spikes": {"seen": 7, "mean": 0.25, "variance": 0.5, "count": 3}, "clipped_steps": 9,
  "clipped_count": 1, "skipped_steps": 4, "uniform_entropy": 0.998,
  "attention_collapse": {"step": 30, "kind": "one_token", "entropy": 0.01}, "startup_seconds": 0.5, "wall_seconds": 8.5,
  "evaluation_seconds": 2.5, "checkpoint_seconds": 0.25,
  "files": {"model.safetensors": "abc", "tokenizer.json": "def"}})");

// The sample with another value and, as by a hostile writer, the right digest.
std::string with(const std::string& key, const Json& value) {
  auto json = sample;
  json[key] = value;
  json["sha256"] = sha256(json.dump());
  return json.dump();
}

std::string refusal(const std::string& text) {
  return message_of(ExitCode::failure, [&] { read_checkpoint_meta(text, "a/meta.json"); });
}

// A classifier of `classes` labels with eight texts each; a word names the label.
Overrides classifier(const Workplace& place, int classes, const Overrides& more = {}) {
  std::string table = "text\tlabel\n";
  for (int i = 0; i < 8 * classes; ++i)
    table += fmt::format("word{0} n{1} m{2}\tlabel{0}\n", i % classes, i % 7, i / classes);
  place.folder().write("table.tsv", table);
  place.folder().write("test.tsv", table.substr(0, table.find('\n', table.size() / 2) + 1));
  return joined({"task=classification", "data.path='" + (place / "table.tsv").string() + "'",
                 "data.test_path='" + (place / "test.tsv").string() + "'", "data.validation_fraction=0.3",
                 "model.layers=1", "task.baselines=false"},
                more);
}

// meta.json without times and its digest, which differ from run to run.
Json meta_without_time(const fs::path& checkpoint) {
  const auto meta = read_meta(checkpoint);
  Json kept;
  for (const auto& [key, value] : meta.items())
    if (key.find("seconds") == std::string::npos && key != "sha256") kept[key] = value;
  return kept;
}

void flip_a_bit(const fs::path& file) {
  auto bytes = read_text(file);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
}

bool is_link_to(const fs::path& link, const std::string& target) {
  return fs::is_symlink(link) && fs::read_symlink(link) == target && fs::exists(link / "model.safetensors");
}

// A run of 12 steps, which can be resumed.
struct ShortRun {
  explicit ShortRun(const Overrides& overrides = {}) { place.train("run", overrides); }
  Json resume(const Overrides& overrides = {}) const { return place.train("run", overrides, true); }

  const Workplace place;
  const fs::path run = place / "run", checkpoints = run / "checkpoints", newest = checkpoints / "step-12";
};

}  // namespace

TEST_CASE("progress and digests are read back as written", "[meta]") {
  const auto text = with("step", 40);
  const auto meta = read_checkpoint_meta(text, "t");
  CHECK(Json::parse(to_text(meta)) == Json::parse(text));
  CHECK(meta.progress.best->error == 0.125);
  CHECK(meta.progress.spikes.variance == 0.5);
  CHECK_FALSE(meta.progress.scheduled);
  CHECK(meta.progress.collapse->kind == CollapseKind::one_token);
  CHECK(meta.digests == std::map<std::string, std::string>{{"model.safetensors", "abc"}, {"tokenizer.json", "def"}});
}

TEST_CASE("meta.json stays small after an evaluation with any number of classes", "[meta]") {
  const auto small = read_checkpoint_meta(with("step", 40), "t");
  auto large = small;
  for (int i = 0; i < 300; ++i)
    large.progress.validation->classes.emplace_back(std::to_string(i), ClassCounts{.texts = i});
  CHECK(to_text(large) == to_text(small));
  Json table;  // many small objects can be read
  for (int i = 0; i < 40'000; ++i) table[std::to_string(i / 200)][std::to_string(i % 200)] = 0;
  CHECK(read_checkpoint_meta(with("confusion", table), "t").progress.step == 40);
}

TEST_CASE("a temperature is in meta.json only if it was fitted", "[meta]") {
  CHECK_FALSE(read_checkpoint_meta(with("step", 40), "t").progress.temperature);
  CHECK_FALSE(Json::parse(to_text(read_checkpoint_meta(with("step", 40), "t"))).contains("temperature"));
  const auto meta = read_checkpoint_meta(with("temperature", 1.7), "t");
  CHECK(meta.progress.temperature == 1.7);
  CHECK(read_checkpoint_meta(to_text(meta), "t").progress.temperature == 1.7);
}

TEST_CASE("impossible values in meta.json are reported as damage", "[meta]") {
  const std::map<std::string, std::string> wrong = {
      {"step", R"(-1, 1.5, "40", 18446744073709551615)"},
      {"format_version", "null, 1"},
      {"loss_sum", R"("4")"},
      {"loss_count", "-2"},
      {"evaluated_step", "41"},
      {"best", R"(null, [1, 2], {"step": 30, "loss": 1}, {"step": 41, "loss": 1, "error": 1})"},
      {"validation", R"(null, {"accuracy": 1})"},
      {"rollbacks", "1001"},
      {"rollback_step", "-1, null"},
      {"temperature", R"(0, 0.04, 21, "1")"},
      {"scheduled", "1, null"},
      {"clipped_steps", "null"},
      {"spikes", R"(7, null, {"seen": 1})"},
      {"uniform_entropy", R"("high")"},
      {"attention_collapse", R"(7, {"step": 1, "kind": "none", "entropy": 0.5},
                                {"step": 18446744073709551615, "kind": "uniform", "entropy": 1})"},
      {"files", R"({"model.safetensors": 1})"}};
  for (const auto& [key, values] : wrong)
    for (const auto& value : Json::parse("[" + values + "]")) {
      INFO(key << " = " << value);
      CHECK_THAT(refusal(with(key, value)), ContainsSubstring("a/meta.json: damaged"));
    }
}

TEST_CASE("hostile nesting and too many keys are refused, and the error for a newer format names it", "[meta]") {
  CHECK_THAT(refusal(with("format_version", 3)), ContainsSubstring("a/meta.json: ") && ContainsSubstring("format 3"));
  std::string keys = "{";
  for (int i = 0; i < 300'000; ++i) keys += fmt::format("\"k{}\":0,", i);
  keys.back() = '}';
  for (const auto& text :
       {std::string(1'000'000, '['), keys, "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"})
    CHECK_THAT(refusal(text), ContainsSubstring("not a JSON object"));
}

TEST_CASE("the recalibration of weights does not depend on earlier evaluations", "[checkpoint]") {
  const Workplace place;
  const auto options = [&](const std::string& interval) {
    return classifier(place, 3,
                      {"task.head.recalibrate=true", "train.keep_checkpoints=9", "train.learning_rate=0.01",
                       "train.eval_interval=" + interval});
  };
  place.train("often", options("4"));
  place.train("once", options("12"));
  for (const auto* step : {"step-4", "step-8", "step-12"})
    CHECK(model_bytes(place / "often", step) == model_bytes(place / "once", step));
}

TEST_CASE("a classifier with 150 classes can be trained, saved, resumed and evaluated", "[checkpoint][classes]") {
  const Workplace place;
  const auto options = [&](const std::string& steps) { return classifier(place, 150, {"train.steps=" + steps}); };
  place.train("run", options("4"));
  const auto summary = place.train("run", options("8"), true);
  CHECK_FALSE(summary["validation"].contains("confusion"));
  CHECK_FALSE(summary["validation"].contains("classes"));
  CHECK(fs::file_size(place / "run/summary.json") < 5000);
  CHECK(place.train("run", options("8"), true) == summary);  // the run is finished, so it is only read

  const auto last = place / "run/checkpoints/last";
  CHECK(fs::file_size(last / "meta.json") < 5000);
  CHECK_FALSE(fs::exists(last / "validation.json"));
  forget_end(place / "run");
  CHECK(place.train("run", options("8"), true)["validation"] == summary["validation"]);

  auto run = load_run(place / "run", "last", "cpu");
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  CHECK(json_of(evaluate_split({*run.predictor, task}, Split::validation)) == summary["validation"]);
}

TEST_CASE("a damaged table of an evaluation is an error only where it is needed", "[checkpoint][classes]") {
  const Workplace place;
  place.train("run", classifier(place, 3, {"train.steps=4"}));
  const auto file = place / "run/checkpoints/step-4/validation.json";
  std::ofstream(file, std::ios::app) << " ";
  const auto run = RunDirectory::open(place / "run");
  CHECK_THROWS_WITH(load_checkpoint(run, "last", WithOptimizer::yes), ContainsSubstring("validation.json: damaged"));
  CHECK(load_checkpoint(run, "last", WithOptimizer::no).progress.step == 4);
}

TEST_CASE("an interrupted evaluation is repeated, and its checkpoint is replaced", "[checkpoint]") {
  const Workplace place;
  const Overrides options = {"train.eval_interval=4", "train.checkpoint_interval=100"};
  const auto whole = place.train("whole", options);
  copy_run(place / "whole", place / "cut");
  // As if stopped during the evaluation of step 12, the last one: saved, but without scores, links and summary.
  const auto folder = place / "cut/checkpoints/step-12";
  const auto evaluated = meta_without_time(folder), before = read_meta(place / "cut/checkpoints/step-8");
  change_meta(folder, [&](Json& meta) {
    for (const auto* key : {"evaluated_step", "validation", "best", "evaluations_since_best"}) meta[key] = before[key];
    meta["scheduled"] = false;
  });
  auto lines = read_text(place / "cut/metrics.jsonl");
  lines.resize(lines.rfind('\n', lines.size() - 2) + 1);
  std::ofstream(place / "cut/metrics.jsonl") << lines;
  if (GENERATE(false, true)) fs::rename(folder, folder.string() + ".replaced");  // killed between two renames
  forget_end(place / "cut");
  const auto cut = place.train("cut", options, true);
  for (const auto* key : {"steps", "train_loss", "val_loss", "best_val_loss", "best_step"})
    CHECK(cut.at(key) == whole.at(key));
  CHECK(meta_without_time(folder) == evaluated);
  CHECK(metrics_without_time(place / "cut") == metrics_without_time(place / "whole"));
  CHECK(is_link_to(place / "cut/checkpoints/best", "step-12"));
  CHECK_FALSE(fs::exists(folder.string() + ".replaced"));
}

TEST_CASE("a copy of a run without links can be resumed", "[checkpoint]") {
  const ShortRun at;
  fs::copy(at.run, at.place / "copy", fs::copy_options::recursive);
  const auto checkpoints = at.place / "copy/checkpoints";
  REQUIRE_FALSE(fs::is_symlink(checkpoints / "last"));
  if (GENERATE(false, true)) fs::remove_all(checkpoints / "step-12");  // `last` is a copy of it
  const Overrides longer = {"train.steps=16"};
  at.place.train("copy", longer, true);
  at.resume(longer);
  CHECK(model_bytes(at.place / "copy") == model_bytes(at.run));
  CHECK(is_link_to(checkpoints / "last", "step-16"));
  CHECK(fs::is_symlink(checkpoints / "best"));
}

TEST_CASE("if the best checkpoint is lost, the best of the others takes its place", "[checkpoint]") {
  const Workplace place;
  const auto options = [&](const std::string& steps) {
    return classifier(place, 3, {"train.steps=" + steps, "train.eval_interval=4", "train.keep_checkpoints=9"});
  };
  place.train("run", options("12"));
  const auto checkpoints = place / "run/checkpoints";
  for (const auto* step : {"step-4", "step-8", "step-12"})  // step 4 is much better than all later ones
    change_meta(checkpoints / step, [](Json& meta) { meta["best"] = {{"step", 4}, {"loss", 1e-9}, {"error", -1}}; });
  flip_a_bit(checkpoints / "step-4/model.safetensors");
  if (GENERATE(true, false)) fs::remove_all(checkpoints / "step-4");
  forget_end(place / "run");
  const auto at_end = place.train("run", options("12"), true);
  CHECK((at_end["best_step"] == 8 || at_end["best_step"] == 12));
  CHECK(at_end["test"].is_object());
  const auto longer = place.train("run", options("16"), true);
  const auto best = fmt::format("step-{}", longer["best_step"].get<int>());
  CHECK(is_link_to(checkpoints / "best", best));
}

TEST_CASE("if no evaluated checkpoint is left, the next evaluation chooses the best one", "[checkpoint]") {
  const ShortRun at({"train.steps=8", "train.eval_interval=6"});
  // Pretends an evaluation at step 2, whose checkpoint is lost.
  change_meta(at.checkpoints / "step-8", [](Json& meta) {
    meta["best"] = {{"step", 2}, {"loss", 1e-9}, {"error", 1e-9}};
    meta["evaluated_step"] = 2;
  });
  forget_end(at.run, {"step-4", "step-6"});
  CHECK(at.resume({"train.steps=12", "train.eval_interval=6"})["best_step"] == 12);
  CHECK(is_link_to(at.checkpoints / "best", "step-12"));
}

TEST_CASE("fewer steps than are already done are refused, and the run does not change", "[checkpoint]") {
  const ShortRun at;
  const auto config = read_text(at.run / "config.yaml");
  if (GENERATE(false, true)) forget_end(at.run);
  const auto message = message_of(ExitCode::usage, [&] { at.resume({"train.steps=8"}); });
  CHECK_THAT(message, Mentions("train.steps is 8|12"));
  CHECK(read_text(at.run / "config.yaml") == config);
}

TEST_CASE("only leftovers of the program are removed", "[checkpoint]") {
  const ShortRun at;
  const auto& folder = at.place.folder();
  const std::vector<std::string> foreign = {"run/checkpoints/notes.tmp", "run/.mine.tmp",
                                            "run/checkpoints/.step-x.12.tmp", "outside/kept.txt"};
  for (const auto& name : foreign) folder.write(name, "kept");
  for (const auto* name : {"run/checkpoints/.step-3.1.tmp/model.safetensors", "run/.summary.json.7.tmp"})
    folder.write(name, "x");
  fs::create_directory_symlink(at.place / "outside", at.checkpoints / ".last.5.tmp");
  at.resume({"train.steps=16"});
  for (const auto& name : foreign) CHECK(fs::exists(at.place / name));
  for (const auto* name : {"run/checkpoints/.step-3.1.tmp", "run/.summary.json.7.tmp", "run/checkpoints/.last.5.tmp"})
    CHECK_FALSE(fs::exists(fs::symlink_status(at.place / name)));
  // The same for a finished run; a broken link with the name of a step is not a checkpoint.
  folder.write("run/.summary.json.7.tmp", "{");
  fs::create_directory_symlink("nowhere", at.checkpoints / "step-20");
  at.resume({"train.steps=16"});
  CHECK_FALSE(fs::exists(at.run / ".summary.json.7.tmp"));
  at.resume({"train.steps=20"});
  CHECK(is_link_to(at.checkpoints / "last", "step-20"));
}

TEST_CASE("a checkpoint with a flipped bit or a truncated file is refused, and an earlier one is used",
          "[checkpoint]") {
  const ShortRun at({"train.keep_checkpoints=5"});
  const auto run = RunDirectory::open(at.run);
  const Rng rng(1, RandomPurpose::evaluation);
  std::uint64_t drawn = 0;
  for (const std::string name : {"model.safetensors", "state.safetensors", "tokenizer.json", "meta.json"}) {
    const auto whole = read_text(at.newest / name);
    for (int i = 0; i < 100; ++i) {
      auto bytes = whole;
      const auto place = rng.below(drawn++, whole.size());
      if (i % 2 == 0)
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << rng.below(drawn++, 8)));
      else
        bytes.resize(place);
      // White space has no effect.
      const bool same = name == "meta.json" && Json::parse(bytes, nullptr, false) == Json::parse(whole);
      std::ofstream(at.newest / name, std::ios::binary) << bytes;
      INFO(name << " at " << place << (i % 2 == 0 ? " flipped" : " cut"));
      if (!same) CHECK_THROWS_AS(load_checkpoint(run, "step-12", WithOptimizer::yes), Error);
      if (i < 4) CHECK(load_newest_checkpoint(run)->progress.step == (same ? 12 : 8));
    }
    std::ofstream(at.newest / name, std::ios::binary) << whole;
  }
  CHECK(load_newest_checkpoint(run)->progress.step == 12);
}

TEST_CASE("links that a killed process did not swap are repaired", "[checkpoint]") {
  const ShortRun at;
  REQUIRE(fs::read_symlink(at.checkpoints / "best") == "step-12");
  forget_end(at.run, {"last", "best"});
  for (const auto* link : {"last", "best"}) fs::create_symlink("step-8", at.checkpoints / link);
  fs::create_symlink("step-12", at.checkpoints / ".last.1.tmp");
  at.resume();
  for (const auto* link : {"last", "best"}) CHECK(fs::read_symlink(at.checkpoints / link) == "step-12");
  CHECK_FALSE(fs::is_symlink(at.checkpoints / ".last.1.tmp"));
}

TEST_CASE("a damaged checkpoint of the step that is saved again is replaced", "[checkpoint]") {
  const ShortRun at;
  const auto whole = model_bytes(at.run);
  flip_a_bit(at.newest / "model.safetensors");
  const auto damaged = model_bytes(at.run, "step-12");
  forget_end(at.run);
  at.resume();
  CHECK(model_bytes(at.run) == whole);
  CHECK(load_checkpoint(RunDirectory::open(at.run), "last", WithOptimizer::yes).progress.step == 12);
  CHECK(model_bytes(at.run, "step-12.damaged") == damaged);
}

TEST_CASE("a checkpoint of a newer program is refused and not changed", "[checkpoint]") {
  const ShortRun at;
  change_meta(at.newest, [](Json& meta) { meta["format_version"] = 99; });
  const auto meta = read_meta(at.newest);
  forget_end(at.run);
  CHECK_THAT(message_of(ExitCode::failure, [&] { at.resume({"train.steps=20"}); }), ContainsSubstring("format 99"));
  CHECK(read_meta(at.newest) == meta);
  CHECK_FALSE(fs::exists(at.checkpoints / "step-20"));
}

}  // namespace metaformer::test_checkpoints
