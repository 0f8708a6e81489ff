// Groups that no other group beats in two measures, against a comparison of all pairs.

#include <random>

#include "report/frontier.h"
#include "report/json.h"
#include "support/failure.h"
#include "support/torch_catch.h"

namespace metaformer::test_frontier {

namespace {

// Two runs of a group, with seeds 1 and 2.
void add_group(std::vector<RunRecord>& runs, const std::string& name, double state, double first, double second) {
  for (const auto& [seed, loss] : {std::pair(1, first), {2, second}}) {
    RunRecord run{.key = name + std::to_string(seed), .config = name, .seed = seed};
    run.settings["model.layers"] = std::to_string(runs.size() / 2 + 1);
    run.measures = {{"val_loss", loss}, {"accuracy", 1 - loss / 10}, {"state_bytes", state}};
    run.data = "d";
    run.source = run.key;
    runs.push_back(std::move(run));
  }
}

Comparison compared(const std::vector<RunRecord>& runs) {
  return compare_runs(runs,
                      {.references = {}, .by = "", .measures = {"val_loss", "accuracy", "state_bytes"}, .margin = {}});
}

std::vector<std::string> front_of(const Frontier& frontier, const Comparison& comparison) {
  std::vector<std::string> names;
  for (const auto& point : frontier.points)
    if (point.is_on_front) names.push_back(comparison.groups[point.group].name);
  return names;
}

}  // namespace

TEST_CASE("a point is on the front if no other is as good in both coordinates and better in one", "[frontier]") {
  std::mt19937 generator(GENERATE(1u, 2u, 3u, 4u));
  const auto values = GENERATE(3, 1000);  // with 3 many are equal
  for (int n = 0; n < 60; ++n) {
    std::vector<double> x, y;
    for (int i = 0; i < n; ++i) {
      x.push_back(static_cast<double>(generator() % static_cast<unsigned>(values)));
      y.push_back(static_cast<double>(generator() % static_cast<unsigned>(values)));
    }
    const auto front = pareto_front(x, y);
    REQUIRE(front.size() == x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      bool is_beaten = false;
      for (std::size_t j = 0; j < x.size(); ++j)
        is_beaten = is_beaten || (x[j] <= x[i] && y[j] <= y[i] && (x[j] < x[i] || y[j] < y[i]));
      CHECK(front[i] == !is_beaten);
    }
  }
}

TEST_CASE("a group is behind another one that costs no more if the interval of their difference excludes 0",
          "[frontier]") {
  std::vector<RunRecord> runs;
  add_group(runs, "small", 10, 3.0, 3.2);
  add_group(runs, "middle", 20, 2.0, 2.1);
  add_group(runs, "bad", 30, 2.9, 3.0);    // behind middle by 0.9 with both seeds
  add_group(runs, "noisy", 40, 2.0, 2.3);  // behind middle by 0 and 0.2
  add_group(runs, "large", 50, 1.0, 1.1);
  const auto comparison = compared(runs);
  for (const std::string y : {"val_loss", "accuracy"}) {  // lower and higher is better
    const auto frontier = frontier_of(comparison, "state_bytes", y);
    CHECK(front_of(frontier, comparison) == std::vector<std::string>{"small", "middle", "large"});
    REQUIRE(frontier.points.size() == 5);
    CHECK(frontier.points[2].better == std::size_t{1});
    CHECK(frontier.points[2].difference.mean == Approx(y == "val_loss" ? 0.9 : -0.09));
    for (const std::size_t i : {0, 1, 3, 4}) CHECK_FALSE(frontier.points[i].better);
    const auto text = to_text(frontier, comparison);
    CHECK_THAT(text, Mentions("* small|on the frontier|* middle|bad|behind middle|noisy|interval|* large"));
    CHECK_THAT(to_markdown(frontier, comparison), Mentions("| small | 2 |"));
    const auto json = to_json(frontier, comparison);
    CHECK(json["points"][2]["better"] == "middle");
    CHECK(json["points"][2]["front"] == false);
    CHECK_THAT(to_svg(figure_of(frontier, comparison)), ContainsSubstring("frontier"));
  }
}

TEST_CASE("a group that is behind in all common seeds is not on the frontier, whatever its other seeds have",
          "[frontier]") {
  std::vector<RunRecord> runs;
  add_group(runs, "a", 10, 2.1, 2.2);
  add_group(runs, "b", 10, 2.0, 2.1);
  auto lucky = runs[0];
  lucky.key = "a3";
  lucky.seed = 3;
  lucky.measures["val_loss"] = 1.0;
  runs.push_back(lucky);
  const auto comparison = compared(runs);
  const auto frontier = frontier_of(comparison, "state_bytes", "val_loss");
  CHECK(comparison.groups[0].measures.at("val_loss").summary.mean < 2);
  for (const auto& point : frontier.points) CHECK_FALSE((point.is_on_front && point.better));
}

TEST_CASE("a frontier adds its measures, and sizes are shown without a deviation", "[frontier]") {
  std::vector<RunRecord> runs;
  add_group(runs, "a", 10, 3, 3.5);
  add_group(runs, "b", 5, 4, 4.5);
  const auto comparison = compare_runs(runs, {.frontier = {"state_bytes", "accuracy"}});
  CHECK(comparison.measures.size() == 1);  // the default, val_loss
  CHECK(frontier_of(comparison, "state_bytes", "accuracy").points.size() == 2);
  const auto table = to_markdown(comparison, {"state_bytes", "val_loss"});
  CHECK_THAT(table, Mentions("| state, KiB |validation loss, mean ± sd|3.2500 ± 0.3536"));
  CHECK(failure([&] {
          compare_runs(runs, {.frontier = {"state_bytes", "acuracy"}});
        }).second.find("accuracy") != std::string::npos);
}

TEST_CASE("groups without one of the measures are left out of the frontier, and if none is left, this is an error",
          "[frontier]") {
  std::vector<RunRecord> runs;
  add_group(runs, "a", 10, 3, 3);
  add_group(runs, "b", 5, 4, 4);
  for (auto& run : runs)
    if (run.config == "b") run.measures.erase("state_bytes");
  const auto comparison = compared(runs);
  const auto frontier = frontier_of(comparison, "state_bytes", "val_loss");
  CHECK(frontier.points.size() == 1);
  CHECK_THAT(to_text(frontier, comparison), ContainsSubstring("left out, without state_bytes or val_loss: b\n"));
  CHECK(to_json(frontier, comparison)["left_out"] == nlohmann::ordered_json::array({"b"}));
  auto by_layers = comparison;
  by_layers.by = "model.layers";
  CHECK(failure([&] { frontier_of(by_layers, "state_bytes", "val_loss"); }).first == ExitCode::usage);
  CHECK(failure([&] { frontier_of(comparison, "train_seconds", "val_loss"); }).first == ExitCode::usage);
}

}  // namespace metaformer::test_frontier
