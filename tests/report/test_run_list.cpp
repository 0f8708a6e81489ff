// The list of runs: states, progress, scores, order, differences, and runs that cannot be read.

#include <fmt/format.h>
#include <sys/stat.h>

#include <map>
#include <set>
#include <sstream>

#include "base/file_lock.h"
#include "base/text.h"
#include "report/run_list.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"

namespace metaformer::test_run_list {

namespace {

using Json = nlohmann::ordered_json;

std::string train_line(int step) {
  return fmt::format("{{\"step\":{},\"split\":\"train\",\"loss\":3.5,\"epoch\":{}}}\n", step, 0.5 * step);
}

std::string validation_line(int step, double loss, const std::string& more = "") {
  return fmt::format("{{\"step\":{},\"split\":\"validation\",\"loss\":{}{}}}\n", step, loss, more);
}

std::string summary(int steps, double loss, const std::string& more = "") {
  return fmt::format("{{\"steps\": {}, \"val_loss\": {}, \"best_val_loss\": {}, \"best_step\": 2{}}}", steps, loss,
                     loss - 0.5, more);
}

// Folders of made-up runs of four steps.
struct Runs : TemporaryFolder {
  void make(const std::string& name, const std::map<std::string, std::string>& files,
            const std::string& config = "train: {steps: 4}\n") const {
    write("runs/" + name + "/config.yaml", config);
    for (const auto& [file, content] : files) write("runs/" + name + "/" + file, content);
  }

  std::vector<ListedRun> list(RunOrder order = RunOrder::name) const { return list_runs(*this / "runs", order); }

  ListedRun only() const {
    const auto runs = list();
    REQUIRE(runs.size() == 1);
    return runs.front();
  }

  // Sets the time of a run's files, in seconds before now.
  void set_age(const std::string& name, int seconds) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(*this / ("runs/" + name)))
      if (entry.is_regular_file())
        std::filesystem::last_write_time(entry.path(),
                                         std::filesystem::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }
};

std::vector<std::string> names_of(const std::vector<ListedRun>& runs) {
  std::vector<std::string> names;
  for (const auto& run : runs) names.push_back(run.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a run is running, finished, stopped, diverged, empty or damaged", "[run_list]") {
  const Runs runs;
  const std::string metrics = train_line(1) + train_line(2) + validation_line(2, 3.25);
  const std::string diverged = "2026-11-28 18:14:32 error: step 3: the training loss is not finite; try less\n";
  runs.make("damaged_config", {{"summary.json", summary(4, 3)}}, "train: 3\n");
  runs.make("damaged_summary", {{"summary.json", "{\"steps\": 4,"}});
  runs.make("empty_config", {{"summary.json", summary(4, 3)}}, "");
  runs.make("diverged", {{"metrics.jsonl", metrics}, {"train.log", "info: a\n" + diverged}});
  runs.make("diverged_summary", {{"summary.json", R"({"steps": 4, "val_loss": null})"}});
  runs.make("early", {{"summary.json", summary(3, 3, ", \"stopped_early\": true")}});
  runs.make("empty", {{"train.log", "info: a\n"}, {"metrics.jsonl", ""}});
  runs.make("finished", {{"summary.json", summary(4, 3)}, {"metrics.jsonl", metrics + train_line(4)}});
  runs.make("recovered", {{"metrics.jsonl", metrics}, {"train.log", diverged + "warning: rollback 1 of 3\n"}});
  runs.make("resumed", {{"summary.json", summary(4, 3)}, {"metrics.jsonl", metrics + train_line(5)}},
            "train: {steps: 8}\n");
  runs.make("running", {{"metrics.jsonl", metrics}});
  runs.make("saved", {{"checkpoints/step-3/meta.json", ""}});
  runs.make("stopped", {{"metrics.jsonl", metrics}, {"lock", "process 1 on nowhere"}});
  const FileLock lock(runs / "runs/running/lock");
  std::map<std::string, std::string> states;
  std::map<std::string, std::int64_t> steps;
  for (const auto& run : runs.list()) {
    states[run.name] = to_string(run.state);
    steps[run.name] = run.step;
  }
  CHECK(states == std::map<std::string, std::string>{{"damaged_config", "damaged"},
                                                     {"damaged_summary", "damaged"},
                                                     {"diverged", "diverged"},
                                                     {"diverged_summary", "diverged"},
                                                     {"early", "finished"},
                                                     {"empty", "empty"},
                                                     {"empty_config", "damaged"},
                                                     {"finished", "finished"},
                                                     {"recovered", "stopped"},
                                                     {"resumed", "stopped"},
                                                     {"running", "running"},
                                                     {"saved", "stopped"},
                                                     {"stopped", "stopped"}});
  CHECK((steps["finished"] == 4 && steps["resumed"] == 5 && steps["running"] == 2 && steps["saved"] == 3));
}

TEST_CASE("columns are aligned beside names of wide characters and combining marks, also when names are cut",
          "[run_list]") {
  const Runs runs;
  const std::string wide = "\xe6\x97\xa5", combined = "e\xcc\x81";  // two columns; one column
  std::string wide_name, combined_name;
  for (int i = 0; i < 30; ++i) {
    wide_name += wide;
    combined_name += combined;
  }
  runs.make("a", {{"summary.json", summary(4, 3)}});
  runs.make(wide_name, {{"summary.json", summary(4, 3)}});
  runs.make(combined_name, {{"summary.json", summary(4, 3)}});
  const auto columns = GENERATE(std::optional<std::size_t>(), std::optional<std::size_t>(90));
  std::istringstream lines(to_text(runs.list(), columns));
  std::set<std::size_t> places;
  for (std::string line; std::getline(lines, line);) {
    if (columns) CHECK(display_width(line) <= *columns);
    const auto state = std::min(line.find("state"), line.find("finished"));
    REQUIRE(state != std::string::npos);
    places.insert(display_width(line.substr(0, state)));
  }
  CHECK(places.size() == 1);
}

TEST_CASE("the reason for a damaged or diverged run is given, and never stops the list", "[run_list]") {
  const Runs runs;
  runs.make("a", {{"summary.json", summary(4, 3)}}, "train: {stepz: 4}\n");
  runs.make("b", {{"summary.json", "[1]"}, {"metrics.jsonl", validation_line(2, 3.25)}});
  runs.make("c", {{"train.log", "2026-11-28 18:14:32 error: step 3: the training loss is not finite\n"}});
  runs.make("d", {{"summary.json", summary(4, 3)}});
  std::filesystem::create_symlink("summary.json", runs / "runs/e");
  runs.make("f", {});
  std::filesystem::create_symlink("summary.json", runs / "runs/f/summary.json");  // a link to itself
  const auto listed = runs.list();
  REQUIRE(names_of(listed) == Names{"a", "b", "c", "d", "f"});
  CHECK_THAT(listed[0].problem, Mentions("config.yaml:1|stepz"));
  CHECK_THAT(listed[1].problem, Mentions("summary.json|JSON object"));
  CHECK(listed[1].newest->loss == 3.25);  // the other files are read
  CHECK(listed[2].problem == "step 3: the training loss is not finite");
  CHECK(listed[3].problem.empty());
  CHECK(listed[4].state == RunState::damaged);
  const auto text = to_text(listed, std::nullopt);
  CHECK_THAT(text, Mentions("a |damaged|stepz|b |damaged|JSON object|c |diverged|d |finished"));
}

TEST_CASE("lines that are half-written or of another split give no score", "[run_list]") {
  const Runs runs;
  runs.make("a", {{"metrics.jsonl", train_line(2) + validation_line(2, 3.25) + train_line(4) + validation_line(4, 3.5) +
                                        R"({"step":9,"split":"test","loss":1})"
                                        "\n" +
                                        R"({"step":5,"split":"validation","loss":2.)"}});
  const auto run = runs.only();
  CHECK(run.step == 4);
  CHECK((run.newest->step == 4 && run.newest->loss == 3.5));
  CHECK((run.best->step == 2 && run.best->loss == 3.25));
}

TEST_CASE("a run is judged by the main measure of its task", "[run_list]") {
  const auto more = [](double accuracy) { return fmt::format(",\"accuracy\":{},\"exact_match\":0.25", accuracy); };
  const auto lines = validation_line(2, 1.5, more(0.75)) + validation_line(4, 1.25, more(0.5));
  const auto judged = [&](const std::string& task, const std::string& end = "") {
    const Runs runs;
    runs.make("a", {{"metrics.jsonl", lines}}, "task: " + task + "\ntrain: {steps: 4}\n");
    if (!end.empty()) runs.write("runs/a/summary.json", end);
    return runs.only();
  };
  const auto classifier = judged("classification");
  CHECK(classifier.measure == "accuracy");
  CHECK((classifier.newest->value == 0.5 && classifier.best->value == 0.75 && classifier.best->step == 2));
  const auto by_loss = judged("{kind: classification, selection_metric: loss}");
  CHECK((by_loss.measure == "loss" && by_loss.best->value == 1.25));
  const auto sorter = judged("sort");
  CHECK((sorter.measure == "exact_match" && sorter.best->step == 4 && sorter.best->value == 0.25));
  CHECK(judged("{kind: copy, length: 4, digits: 4}").measure == "accuracy");
  CHECK(judged("recall").measure == "accuracy");
  CHECK(judged("language_model").measure == "loss");
  const auto finished =
      judged("classification",
             R"({"steps": 4, "val_loss": 1.25, "best_val_loss": 1.5, "best_val_error": 0.125, "best_step": 2})");
  CHECK((finished.best->value == 0.875 && finished.best->loss == 1.5));
  CHECK_THAT(describe_progress(finished), Mentions("step 4 of 4|best loss 1.5|accuracy 87.5"));
  CHECK_THAT(to_text({finished}, std::nullopt), Mentions("accuracy 50.00%|accuracy 87.50% at 2"));
}

TEST_CASE("with train.epochs the number of steps follows from the log", "[run_list]") {
  const Runs runs;
  runs.make("a", {{"metrics.jsonl", train_line(2) + train_line(4) + validation_line(4, 2)}}, "train: {epochs: 5}\n");
  CHECK(runs.only().steps == 10);
  runs.write("runs/a/metrics.jsonl", "");
  CHECK_FALSE(runs.only().steps.has_value());
}

TEST_CASE("runs are found at any depth, but not in checkpoints, hidden folders or behind links", "[run_list]") {
  const Runs runs;
  for (const auto* name : {"a", "sweep/b", "sweep/deep/c", "a/inner", ".hidden/d", "a/checkpoints/e"})
    runs.make(name, {});
  std::filesystem::create_directory_symlink("sweep", runs / "runs/link");
  std::filesystem::create_directory_symlink("a", runs / "runs/latest");
  CHECK(names_of(runs.list()) == Names{"a", "a/inner", "sweep/b", "sweep/deep/c"});
  CHECK(list_runs(runs / "runs/sweep/", RunOrder::name).front().name == "b");
  CHECK(list_runs(runs / "runs/latest", RunOrder::name).front().name == "a");
  CHECK(list_runs(runs / "nothing", RunOrder::name).empty());
}

TEST_CASE("a run whose removal was stopped is listed with its command", "[run_list]") {
  const Runs runs;
  runs.make(".a.123.tmp", {});
  const auto run = runs.only();
  CHECK(run.state == RunState::half_deleted);
  CHECK_THAT(to_text({run}, std::nullopt), Mentions(".a.123.tmp|half_deleted|runs rm"));
}

TEST_CASE("runs are sorted by age, name or loss", "[run_list]") {
  const Runs runs;
  for (const auto& [name, age, loss] : {std::tuple("a", 500, 2.0), {"b", 100, 3.0}, {"c", 900, 1.0}}) {
    runs.make(name, {{"metrics.jsonl", validation_line(2, loss)}});
    runs.set_age(name, age);
  }
  runs.make("d", {});
  runs.set_age("d", 300);
  CHECK(names_of(runs.list(RunOrder::age)) == Names{"b", "d", "a", "c"});
  CHECK(names_of(runs.list(RunOrder::name)) == Names{"a", "b", "c", "d"});
  CHECK(names_of(runs.list(RunOrder::loss)) == Names{"c", "a", "b", "d"});
  CHECK_THAT(to_text(runs.list(RunOrder::age), std::nullopt), Mentions("b |1m4|d |5m0|a |8m2|c |15m0"));
}

TEST_CASE("the keys in which runs differ are shown, with the seed and without what they share", "[run_list]") {
  const Runs runs;
  const std::string shared = "train: {steps: 4, batch_size: 3";
  runs.make("a", {}, shared + "}\n");
  runs.make("b", {}, shared + ", seed: 7}\nmodel: {mixer: metric}\n");
  runs.make("c", {}, "train: 3\n");
  const auto listed = runs.list();
  CHECK(listed[0].differences == Settings{{"model.mixer.kind", "scaled_dot_product"}, {"train.seed", "1337"}});
  CHECK(listed[1].differences == Settings{{"model.mixer.kind", "metric"}, {"train.seed", "7"}});
  CHECK(listed[2].differences.empty());
  const auto text = to_text(listed, std::nullopt);
  CHECK_THAT(text, Mentions("differences|model.mixer.kind=scaled_dot_product train.seed=1337|kind=metric"));
  CHECK_THAT(text, !ContainsSubstring("batch_size="));
  runs.write("runs/b/config.yaml", shared + "}\n");
  runs.write("runs/c/config.yaml", shared + "}\n");
  CHECK_THAT(to_text(runs.list(), std::nullopt), !ContainsSubstring("differences"));
}

TEST_CASE("a table fits the terminal, and is whole elsewhere", "[run_list]") {
  const Runs runs;
  const std::string name = "run_" + std::string(60, 'x') + "_caf\xc3\xa9\x1b_end";
  runs.make("a", {}, "train: {seed: 1}\n");
  runs.make(name, {}, "train: {seed: 2}\nmodel: {mixer: metric}\n");
  const auto listed = runs.list();
  const auto columns = GENERATE(as<std::size_t>(), 20, 79, 120, 500);
  std::istringstream lines(to_text(listed, columns));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CAPTURE(line);
    const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
    CHECK(static_cast<std::size_t>(std::count_if(line.begin(), line.end(), starts)) <= columns);
    CHECK_FALSE(line.ends_with(' '));
    CHECK(line.find('\x1b') == std::string::npos);
  }
  CHECK(count == 3);
  if (columns >= 79) CHECK_THAT(to_text(listed, columns), ContainsSubstring("_end "));
  CHECK_THAT(to_text(listed, std::nullopt),
             Mentions(std::string(60, 'x') + "_caf\xc3\xa9\\x1b_end |kind=metric|seed=2"));
}

TEST_CASE("the JSON of a run has everything, and null for what is unknown", "[run_list]") {
  const Runs runs;
  runs.make("a", {{"metrics.jsonl", validation_line(2, 1.5)}}, "train: {steps: 4, seed: 7}\n");
  runs.make("b", {{"train.log", "x"}}, "nonsense: 1\n");
  const auto listed = runs.list();
  const auto a = to_json(listed[0]), b = to_json(listed[1]);
  CHECK(a["path"] == (runs / "runs/a").string());
  CHECK((a["name"] == "a" && a["state"] == "stopped" && a["problem"].is_null() && a["task"] == "language_model"));
  CHECK((a["step"] == 2 && a["steps"] == 4 && a["measure"] == "loss"));
  CHECK(a["validation"] == Json({{"step", 2}, {"loss", 1.5}}));
  CHECK(a["best"] == a["validation"]);
  CHECK(a["bytes"] == read_text(runs / "runs/a/config.yaml").size() + read_text(runs / "runs/a/metrics.jsonl").size());
  CHECK((a["age_seconds"].get<double>() >= 0 && a["age_seconds"].get<double>() < 600));
  CHECK(a["changed"].get<std::string>().size() == std::string("2026-11-28T18:14:32Z").size());
  CHECK((b["state"] == "damaged" && b["task"].is_null() && b["steps"].is_null() && b["best"].is_null()));
  CHECK_THAT(b["problem"].get<std::string>(), ContainsSubstring("nonsense"));
  CHECK(b["differences"] == Json::object());
}

}  // namespace metaformer::test_run_list
