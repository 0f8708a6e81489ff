// Groups of runs, runs that are left out of them, and tables.

#include "report/comparison.h"
#include "report/json.h"
#include "support/failure.h"
#include "support/torch_catch.h"

namespace metaformer::test_comparison {

namespace {

RunRecord run_of(const std::string& config, std::int64_t seed, double loss, const std::string& mixer,
                 const std::string& data = "d") {
  RunRecord run{.key = config + std::to_string(seed), .config = config, .seed = seed};
  if (!mixer.empty()) run.settings["model.mixer.kind"] = mixer;
  run.measures = {{"val_loss", loss}, {"parameters", 1234567}};
  run.data = data;
  run.source = config + "-" + std::to_string(seed);
  return run;
}

std::vector<RunRecord> two_groups() {
  return {run_of("x_a.yaml", 1, 1, ""), run_of("x_b.yaml", 1, 2, "quadratic"), run_of("x_b.yaml", 2, 4, "quadratic"),
          run_of("x_a.yaml", 2, 2, ""), run_of("x_a.yaml", 3, 6, ""),          run_of("x_b.yaml", 3, 9, "quadratic")};
}

bool has_note(const Comparison& comparison, const std::string& text) {
  return std::any_of(comparison.notes.begin(), comparison.notes.end(),
                     [&](const auto& note) { return Mentions(text).match(note); });
}

}  // namespace

TEST_CASE("runs that differ only in their seed are a group, which is compared with the first group seed by seed",
          "[compare]") {
  const auto comparison = compare_runs(two_groups(), {});
  REQUIRE(comparison.groups.size() == 2);
  CHECK(comparison.notes.empty());
  CHECK(comparison.differing_keys == std::vector<std::string>{"model.mixer.kind"});
  CHECK(comparison.groups[0].settings.at("model.mixer.kind") == "scaled_dot_product");  // the default
  const auto& loss = comparison.groups[1].measures.at("val_loss");
  CHECK(loss.summary.mean == 5);
  CHECK(loss.difference->mean == 2);
  CHECK_FALSE(comparison.groups[0].measures.at("val_loss").difference);
  CHECK(short_names(comparison.groups) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("runs without a partner, of other data or with the same seed are named and left out", "[compare]") {
  auto runs = two_groups();
  SECTION("of differences: without a partner") {
    runs.pop_back();  // x_b lacks seed 3
    runs.push_back(run_of("x_b.yaml", 4, 100, "quadratic"));
    const auto comparison = compare_runs(runs, {});
    CHECK(comparison.groups[1].measures.at("val_loss").difference->mean == 1.5);
    CHECK(has_note(comparison, "x_a.yaml-3: left out|x_b.yaml|seed 3"));
    CHECK(has_note(comparison, "x_b.yaml-4: left out|x_a.yaml|seed 4"));
  }
  SECTION("of other data, and second runs of a seed") {
    runs.push_back(run_of("x_c.yaml", 1, 1, "identity", "other"));
    runs.push_back(run_of("x_a.yaml", 1, 50, ""));
    const auto comparison = compare_runs(runs, {});
    CHECK(comparison.groups.size() == 2);
    CHECK(comparison.groups[0].measures.at("val_loss").summary.mean == 3);
    CHECK(has_note(comparison, "x_c.yaml-1:|other data|x_a.yaml-1"));
    CHECK(has_note(comparison, "x_a.yaml-1:|x_a.yaml-1|same config|1"));
  }
}

TEST_CASE("the reference is the named group, or the first group with the same value of a key", "[compare]") {
  auto runs = two_groups();
  for (const char* name : {"x_b", "x_b.yaml", "b", "x_b.yaml-2", "2"}) {
    INFO(name);
    const auto comparison = compare_runs(runs, {.references = {name}});
    CHECK(comparison.groups[0].measures.at("val_loss").difference->mean == -2);
  }
  CHECK(compare_runs(runs, {.by = "model.mixer.kind"}).groups[1].reference == 1);
  CHECK(compare_runs(runs, {.references = {"2", "1"}, .by = "model.mixer.kind"}).groups[1].reference == 1);
  CHECK(failure([&] { compare_runs(runs, {.references = {"2", "1"}}); }).first == ExitCode::usage);
  for (auto& run : runs) {
    run.overrides = run.config == "x_a.yaml" ? "model.layers=1" : "model.layers=2";
    run.config = "x.yaml";
  }
  CHECK(compare_runs(runs, {.references = {"layers=2"}}).groups[0].reference == 1);
  const auto [code, what] = failure([&] { compare_runs(runs, {.references = {"x.yaml"}}); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(what, ContainsSubstring("'x.yaml' names 2 groups") && ContainsSubstring("1 'layers=1', 2 'layers=2'"));
}

TEST_CASE("an unknown group, key or measure is an error that lists the known ones", "[compare]") {
  const std::vector<std::pair<ComparisonOptions, std::string>> cases = {
      {{.references = {"x_d"}}, "--reference 'x_d':|1 'a'|2 'b'"},
      {{.by = "model.no"}, "--by 'model.no':|key"},
      {{.by = "train.seed"}, "group differ in it"},
      {{.by = "model.mixer"}, "did you mean 'model.mixer.kind'?"},
      {{.measures = {"val_los"}}, "'val_los'|'val_loss'?|parameters"}};
  for (const auto& [options, expected] : cases) {
    const auto [code, what] = failure([&, &asked = options] { compare_runs(two_groups(), asked); });
    CHECK(code == ExitCode::usage);
    CHECK_THAT(what, Mentions(expected));
  }
  CHECK(failure([&] { compare_runs({}, {}); }).first == ExitCode::usage);
}

TEST_CASE("data without digests are compared by their configs", "[compare]") {
  auto runs = two_groups();
  for (auto& run : runs) run.data.clear();
  CHECK(has_note(compare_runs(runs, {}), "6 of 6 runs|do not record"));
  runs[1].data = "e";
  runs[2].data = "d";
  CHECK(has_note(compare_runs(runs, {}), "x_b.yaml-2:|other data|x_b.yaml-1"));
  for (auto& run : runs) run.data.clear();
  for (auto& run : runs)
    if (run.config == "x_b.yaml") run.settings["task.kind"] = "sort";
  const auto comparison = compare_runs(runs, {});
  CHECK(comparison.groups.size() == 1);
  CHECK(has_note(comparison, "x_b.yaml-2:|other data|x_a.yaml-1"));
  const auto by_task = compare_runs(runs, {.by = "task.kind"});
  CHECK(by_task.groups.size() == 2);
  CHECK(by_task.groups[1].reference == 1);
  for (auto& run : runs) run.settings["task.kind"] = "sort";
  CHECK(compare_runs(runs, {}).notes.empty());  // data that the config defines need no digest
}

TEST_CASE("the margin of equivalence is in the unit of the table", "[compare]") {
  std::vector<RunRecord> runs;
  for (const std::int64_t seed : {1, 2, 3}) {
    runs.push_back(run_of("a", seed, 1, ""));
    runs.push_back(run_of("b", seed, 1, "quadratic"));
    runs[runs.size() - 2].measures["test_accuracy"] = 0.88;
    runs.back().measures["test_accuracy"] = 0.88 + 0.001 * static_cast<double>(seed);
  }
  const auto equivalent = [&](double margin) {
    return compare_runs(runs, {.margin = margin}).groups[1].measures.at("test_accuracy").difference->equivalent.value();
  };
  // +0.2 points, +-0.25.
  CHECK(equivalent(0.5));
  CHECK_FALSE(equivalent(0.4));
}

TEST_CASE("short names leave out common parts, and are unique", "[compare]") {
  const auto named = [](const std::vector<std::pair<std::string, std::string>>& names) {
    std::vector<RunRecord> runs;
    for (const auto& [config, overrides] : names) {
      runs.push_back(run_of(config, 1, 1, ""));
      runs.back().overrides = overrides;
      runs.back().settings["train.steps"] = std::to_string(runs.size());
    }
    return short_names(compare_runs(runs, {}).groups);
  };
  using Names = std::vector<std::string>;
  CHECK(named({{"x_y_a.yaml", ""}, {"x_y_b.yaml", "model.mixer.score_std=1"}}) == Names{"a", "b"});
  CHECK(named({{"x_a.yaml", ""}, {"x_b.yaml", "model.mixer.score_std=1"}, {"x_b.yaml", ""}}) ==
        Names{"a", "b score_std=1", "b"});
  CHECK(named({{"x_a.yaml", ""}, {"x_a.yaml", "model.layers=2"}}) == Names{"x_a", "layers=2"});
  CHECK(named({{"x_a.yaml", "train.steps=9 a.b=1"}, {"x_a.yaml", "train.steps=9 a.b=2"}}) == Names{"b=1", "b=2"});
  CHECK(named({{"x_a.yaml", "train.steps=9"}, {"x_b.yaml", "train.steps=9"}}) == Names{"a", "b"});
  CHECK(named({{"x_a.yaml", "train.steps=9"}}) == Names{"x_a"});
  CHECK(named({{"x_a.yaml", "model.width=2"}, {"x_a.yaml", "other.width=2"}}) ==
        Names{"x_a.yaml model.width=2", "x_a.yaml other.width=2"});
}

TEST_CASE("every measure has one entry with its format and whether it is a default", "[compare]") {
  using Names = std::vector<std::string>;
  CHECK(default_measures({"val_loss", "test_accuracy", "test_bleu", "test_chrf", "test_rouge_l", "test_exact_match"}) ==
        Names{"test_bleu", "test_chrf", "test_rouge_l", "test_exact_match", "val_loss"});
  CHECK(default_measures({"val_loss", "test_accuracy", "test_f1"}) == Names{"test_accuracy", "test_f1"});
  CHECK(default_measures({"val_loss", "exact_match"}) == Names{"exact_match", "val_loss"});
  std::set<std::string> ids;
  for (const auto& measure : all_measures()) CHECK(ids.insert(measure.id).second);
  CHECK(shown(measure_of("parameters"), 804096) == "804,096");
  CHECK(shown(measure_of("peak_memory_bytes"), 3 << 20) == "3");
  CHECK(shown_difference(measure_of("test_accuracy"), 0.005) == "+0.50");
  CHECK(described("exact_match", 0.995) == "exact match 99.50%");
  CHECK(measure_of("val_loss_128").title == "validation loss with 128 tokens");
  CHECK(is_own_measure("val_loss_128"));
  CHECK_FALSE(is_own_measure("my_own"));
  CHECK(shown(measure_of("my_own"), 0.5) == "0.5000");
  auto run = run_of("a.yaml", 1, 2, "");
  run.measures["train_loss"] = 1.5;
  add_derived_measures(run);
  CHECK(run.measures.at("loss_gap") == 0.5);
  run.measures.erase("loss_gap");
  run.settings["task.label_smoothing"] = "0.1";  // there is no gap to a smoothed loss
  add_derived_measures(run);
  CHECK_FALSE(run.measures.contains("loss_gap"));
}

TEST_CASE("a comparison is written as Markdown, text, CSV and JSON", "[compare]") {
  auto runs = two_groups();
  runs[1].collapse = AttentionCollapse{.step = 40, .kind = CollapseKind::one_token, .entropy = 0.01};
  const auto comparison = compare_runs(runs, {});
  CHECK(
      to_markdown(comparison, {"val_loss", "val_loss:difference", "val_loss:worst", "val_loss:values", "parameters"}) ==
      "| config | seeds | validation loss, mean ± sd | difference to the first row (95% interval) | worst | validation "
      "loss | parameters |\n"
      "|---|---|---|---|---|---|---|\n"
      "| x_a.yaml | 3 | 3.0000 ± 2.6458 |  | 6.0000 | 1.0000, 2.0000, 6.0000 | 1,234,567 |\n"
      "| x_b.yaml | 3 | 5.0000 ± 3.6056 | +2.0000 (-0.4841 to +4.4841) | 9.0000 | 2.0000, 4.0000, 9.0000 | 1,234,567 "
      "|\n");
  CHECK_THAT(to_text(comparison), ContainsSubstring("+2.0000 (-0.4841 to +4.4841); 3"));
  CHECK_THAT(to_csv(comparison), ContainsSubstring("x_b.yaml,val_loss,3,5,"));
  const auto json = to_json(comparison);
  CHECK(json["groups"][1]["metrics"]["val_loss"]["difference"]["pairs"] == 3);
  CHECK(json["groups"][1]["runs"][0]["attention_collapse"]["kind"] == "one_token");
  CHECK(json["groups"][1]["runs"][0]["attention_collapse"]["step"] == 40);
  CHECK_FALSE(json["groups"][0]["runs"][0].contains("attention_collapse"));
  CHECK(failure([&] { to_markdown(comparison, {"val_loss:median"}); }).first == ExitCode::usage);
}

}  // namespace metaformer::test_comparison
