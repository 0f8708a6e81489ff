#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/signals.h"
#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"
#include "model/model_costs.h"
#include "report/class_results.h"
#include "report/curves.h"
#include "report/figure.h"
#include "report/frontier.h"
#include "report/json.h"
#include "report/pictures.h"
#include "report/run_records.h"
#include "run/run_directory.h"
#include "run/run_summary.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// Replaces @names@ by values; inserted text is not searched again.
std::string fill(std::string_view pattern, const std::map<std::string, std::string_view>& values) {
  static const std::regex name("@([a-z0-9_]+)@");
  std::string result;
  const auto* rest = pattern.begin();
  for (std::cregex_iterator match(pattern.begin(), pattern.end(), name), end; match != end; ++match) {
    result.append(rest, (*match)[0].first);
    result += values.at((*match)[1]);
    rest = (*match)[0].second;
  }
  return result.append(rest, pattern.end());
}

// The runs of a report.

struct ReportedRun {
  fs::path folder;
  std::string name;  // of the folder
  std::int64_t seed = 0;
  std::size_t group = 0;
  bool compared = false;  // it counts in the comparison
  Json shown = {};        // as on the page
};

struct ReportedGroup {
  std::string name;
  Settings changed;         // changed_settings
  std::string task = {};    // kind
  Settings settings = {};   // all that apply
  std::string config = {};  // of the first run, as YAML
  std::vector<std::size_t> runs = {};
};

// In the order of the sweep (sort_by_sweep); groups in that of their first runs.
struct ReportedRuns {
  std::vector<ReportedRun> runs;
  std::vector<ReportedGroup> groups;
  std::optional<Comparison> comparison;  // nothing when no run is finished
  std::optional<Frontier> frontier;      // of the comparison, if two measures are given
  std::vector<std::string> problems;     // a line each: runs that could not be read, or are not compared
};

Json describe_environment(const Json& environment) {
  Json result = Json::object();
  for (const char* key : {"commit", "threads", "torch", "compiler", "host"}) result[key] = text_of(environment, key);
  result["commit"] = result["commit"].get<std::string>().substr(0, 12) +
                     (environment.value("dirty", Json()) == true ? " (changed)" : "");
  result["device"] = fmt::format("{} {}", text_of(environment, "device"), text_of(environment, "device_name"));
  const auto sessions = environment.value("sessions", Json());
  const bool has_start = sessions.is_array() && !sessions.empty() && sessions.front().is_object();
  result["started"] = has_start ? text_of(sessions.front(), "started") : "";
  std::string command;
  for (const auto& word : environment.value("command", Json()))
    if (word.is_string()) command += (command.empty() ? "" : " ") + word.get<std::string>();
  result["command"] = command;
  return result;
}

// The operations of training for each token: a forward pass and a backward pass, which takes twice as many. Null if
// they are not known yet.
Json training_operations(const ExperimentConfig& config, const std::optional<RunSummary>& summary,
                         const Json& environment) {
  constexpr double passes = 3;
  double operations = 0;
  const auto data = environment.value("data", Json());
  const auto vocabulary = data.is_object() ? data.value("vocabulary", Json()) : Json();
  if (summary && summary->stepwise)
    operations = summary->stepwise->costs.operations_per_token;
  else if (is<ClassificationConfig>(config.task) || vocabulary.is_number_integer())
    operations =
        costs_of(config, vocabulary.is_number_integer() ? vocabulary.get<std::int64_t>() : 0).operations_per_token;
  return operations > 0 ? rounded(passes * operations) : Json();
}

// `compared`: the comparison's groups by folder; `unfinished`: why the run has no result. Skips a copy of a compared
// run.
void add_run(ReportedRuns& reported, const fs::path& folder, const std::map<fs::path, std::size_t>& compared,
             const std::string& unfinished) {
  const auto run = RunDirectory::open(folder, "");
  const auto config = load_run_experiment(run.config_file()).config;
  const auto changed = changed_settings(config);
  const auto known = compared.find(folder);
  auto& groups = reported.groups;
  ReportedRun added{.folder = folder,
                    .name = fs::weakly_canonical(folder).filename().string(),
                    .seed = config.train.seed,
                    .compared = known != compared.end()};
  const auto is_same = [&](const RunRecord& other) { return other.seed == added.seed && other.settings == changed; };
  for (std::size_t i = 0; !added.compared && reported.comparison && i < reported.comparison->groups.size(); ++i)
    if (std::ranges::any_of(reported.comparison->groups[i].runs, is_same)) return;
  if (added.compared) {
    added.group = known->second;
  } else {
    const auto equal = std::ranges::find(groups, changed, &ReportedGroup::changed);
    added.group = static_cast<std::size_t>(equal - groups.begin());
    if (equal == groups.end()) groups.push_back({.name = added.name, .changed = changed});
  }
  auto& group = groups[added.group];
  if (group.runs.empty()) {
    group.task = kind_of(config.task);
    group.settings = all_settings(changed);
    group.config = config_to_yaml(config);
  }
  group.runs.push_back(reported.runs.size());
  const auto summary = read_summary(run);
  const auto environment = read_environment(run);
  const auto collapse = summary ? summary->attention_collapse : std::nullopt;
  added.shown = {{"name", added.name},
                 {"seed", added.seed},
                 {"group", 0},
                 {"state", summary ? "finished" : unfinished},
                 {"attention_collapse", collapse ? to_json(*collapse) : Json()},
                 {"time", summary ? rounded(summary->train_seconds) : Json()},
                 {"operations", training_operations(config, summary, environment)},
                 {"environment", describe_environment(environment)}};
  reported.runs.push_back(std::move(added));
}

// Drops groups of the comparison whose runs are all rows of a results file, which have nothing to show, and sorts the
// others.
void arrange_groups(ReportedRuns& reported) {
  auto& groups = reported.groups;
  std::erase_if(groups, [](const auto& group) { return group.runs.empty(); });
  std::ranges::sort(groups, {}, [](const auto& group) { return group.runs.front(); });
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (const auto run : groups[i].runs) reported.runs[run].group = i;
}

ReportedRuns read_reported_runs(const std::vector<std::string>& arguments, const ComparisonOptions& options) {
  ReportedRuns reported;
  auto found = find_runs(arguments);
  sort_by_sweep(found);
  reported.problems = std::move(found.problems);
  std::map<fs::path, std::size_t> compared;
  if (!found.runs.empty()) {
    reported.comparison = compare_runs(std::move(found.runs), options);
    if (const auto& pair = options.frontier; !pair.empty())
      reported.frontier = frontier_of(*reported.comparison, pair[0], pair[1]);
    const auto& groups = reported.comparison->groups;
    const auto names = short_names(groups);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      reported.groups.push_back({.name = names[i], .changed = groups[i].runs.front().settings});
      for (const auto& run : groups[i].runs) compared[run.folder] = i;
    }
  }
  for (const auto& folder : found.folders) {
    const bool has_problem = found.unfinished.contains(folder);
    try {
      add_run(reported, folder, compared, found.unfinished[folder]);
    } catch (const Error& error) {
      if (!has_problem) reported.problems.push_back(fmt::format("{}: left out: {}", folder.string(), error.what()));
    }
  }
  arrange_groups(reported);
  if (reported.comparison) std::ranges::copy(reported.comparison->notes, std::back_inserter(reported.problems));
  return reported;
}

// The keys whose values differ between groups, or that some groups do not have.
std::vector<std::string> keys_between_groups(const std::vector<ReportedGroup>& groups) {
  std::map<std::string, std::map<std::string, std::size_t>> counts;  // of each value, by key
  for (const auto& group : groups)
    for (const auto& [key, value] : group.settings) ++counts[key][value];
  std::vector<std::string> keys;
  for (const auto& [key, values] : counts)
    if (values.begin()->second < groups.size()) keys.push_back(key);
  return keys;
}

Json describe(const Comparison& comparison, const ReportedRuns& reported) {
  auto json = to_json(comparison);
  if (reported.frontier) json["frontier"] = to_json(*reported.frontier, comparison);
  json["costs"] = Json::array();
  for (const auto& id : cost_measures()) json["costs"].push_back(to_json(measure_of(id)));
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& settings = comparison.groups[i].runs.front().settings;
    const auto group = std::ranges::find(reported.groups, settings, &ReportedGroup::changed);
    json["groups"][i]["color"] = group == reported.groups.end() ? Json() : Json(group - reported.groups.begin());
  }
  return json;
}

// Stays the same when further runs are added.
std::string id_of(const Settings& changed) {
  std::string text;
  for (const auto& [key, value] : changed) text += fmt::format("{}={}\n", key, value);
  constexpr std::size_t digits = 12;
  return sha256(text).substr(0, digits);
}

// {"runs": [...], "groups": [...], "differing_keys", "comparison": to_json(Comparison) with "costs", "color" (the
// number of the page's group, or null) and "frontier" if two measures are given; null without one}
Json describe(const ReportedRuns& reported) {
  const auto keys = keys_between_groups(reported.groups);
  Json json = {{"runs", Json::array()}, {"groups", Json::array()}, {"differing_keys", keys}};
  for (const auto& run : reported.runs) {
    json["runs"].push_back(run.shown);
    json["runs"].back()["group"] = run.group;
  }
  for (const auto& group : reported.groups) {
    Json settings = Json::object();
    for (const auto& key : keys)
      if (const auto found = group.settings.find(key); found != group.settings.end()) settings[key] = found->second;
    json["groups"].push_back({{"name", group.name},
                              {"id", id_of(group.changed)},
                              {"task", group.task},
                              {"settings", settings},
                              {"config", group.config},
                              {"runs", group.runs}});
  }
  json["comparison"] = reported.comparison ? describe(*reported.comparison, reported) : Json();
  return json;
}

// The number of points for each of `count` curves, if all of them together may have `all` points.
std::size_t points_of_each(std::size_t all, std::size_t count, std::size_t fewest, std::size_t most) {
  return std::clamp(all / std::max<std::size_t>(1, count), fewest, most);
}

// Limits that keep a page below 10 MB: of the bytes of matrices, and of points of curves (about 20 bytes each).
constexpr std::size_t most_matrix_bytes = 6'500'000, most_points = 160'000, most_roc_points = 40'000;
constexpr std::size_t most_block_points = 60'000, most_points_of_block = 200, fewest_points_of_block = 10;
constexpr std::size_t most_points_of_curve = 1000, fewest_points_of_curve = 60;
constexpr std::size_t most_points_of_roc = 200, fewest_points_of_roc = 20;

class ReportMaker {
 public:
  ReportMaker(const ReportOptions& options, CheckpointReader& checkpoints)
      : options_(options), checkpoints_(checkpoints), reported_(read_reported_runs(options.runs, options.comparison)) {
    if (reported_.runs.empty())
      fail_usage("no run to report: give folders of runs; a results file only adds rows to the tables");
    if (!options.figures.empty()) figures_.emplace(options.figures);
  }

  Report make() {
    read_all_curves();
    data_ = describe(reported_);
    data_["origin"] = fmt::format("Made by metaformer {}, commit {}{}.", build_info().version, build_info().commit,
                                  build_info().dirty ? " (changed)" : "");
    data_["curves"] = to_json(curves_);
    data_["curves"]["description"] = describe_curves();
    data_["blocks"] = describe_blocks();
    data_["classifiers"] = describe_classifiers();
    data_["translations"] = Json::array();
    data_["texts"] = {{"description", describe_texts()}, {"samples", Json::array()}};
    data_["inspected"] = Json::array();
    data_["inspection_text"] = "";
    write_overview_figures();
    if (options_.with_texts || options_.with_insides) add_checkpoints();
    data_["inspection_text"] = describe_inspection();
    log::clear_progress();
    data_["problems"] = reported_.problems;
    if (options_.watch) data_["watch"] = {{"seconds", *options_.watch}};
    Report report{.runs = reported_.runs.size(), .groups = reported_.groups.size(), .problems = reported_.problems};
    report.figures = figures_ ? figures_->written() : 0;
    report.data = json_text(data_);
    report.html = make_page(options_.title, report.data, /*may_fetch=*/options_.watch.has_value());
    return report;
  }

 private:
  void note(std::size_t run, const char* what, const Error& error) {
    reported_.problems.push_back(fmt::format("{}: {}: {}", reported_.runs[run].folder.string(), what, error.what()));
  }

  void read_all_curves() {
    std::vector<LoggedCurves> by_run(reported_.runs.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < by_run.size(); ++i) {
      show_progress("reading", i, i + 1);
      try {
        by_run[i] = read_curves(RunDirectory::open(reported_.runs[i].folder, "").metrics_file());
      } catch (const Error& error) {
        note(i, "no curves", error);
      }
      count += 2 * by_run[i].curves.size();
    }
    const auto most = points_of_each(most_points, count, fewest_points_of_curve, most_points_of_curve);
    for (std::size_t i = 0; i < by_run.size(); ++i) {
      blocks_.push_back(std::move(by_run[i].blocks));
      for (const auto& [name, curve] : by_run[i].curves) {
        auto& series = curves_[name];
        series.runs.resize(by_run.size());
        averaged_ = std::max(averaged_, (curve.step.size() + most - 1) / most);
        series.runs[i] = thinned(curve, most, describes_interval(name));
      }
    }
    for (auto& [name, series] : curves_)
      for (const auto& group : reported_.groups) series.groups.push_back(mean_curve(curves_of(group, series)));
  }

  // The curves of the runs that count in the comparison; of all runs in a group without such runs.
  std::vector<const StepCurve*> curves_of(const ReportedGroup& group, const CurveSeries& series) const {
    const auto is_compared = [&](std::size_t run) { return reported_.runs[run].compared; };
    const bool all = std::ranges::none_of(group.runs, is_compared);
    std::vector<const StepCurve*> curves;
    for (const auto run : group.runs)
      if ((all || is_compared(run)) && !series.runs[run].step.empty()) curves.push_back(&series.runs[run]);
    return curves;
  }

  // The measurements of train.diagnostics_interval, of the runs that have them.
  Json describe_blocks() const {
    std::size_t count = 0;
    for (const auto& panels : blocks_)
      for (const auto& panel : panels) count += 3 * panel.lines.size();
    const auto most = points_of_each(most_block_points, count, fewest_points_of_block, most_points_of_block);
    auto runs = Json::array();
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (!blocks_[i].empty()) runs.push_back({{"run", i}, {"panels", to_json(blocks_[i], most)}});
    return runs;
  }

  // Results of every classifier, and of those without any the reason.
  Json describe_classifiers() {
    const auto is_classifier = [&](const auto& group) { return group.task == "classification"; };
    std::size_t count = 0;
    for (const auto& group : reported_.groups)
      if (is_classifier(group)) count += group.runs.size();
    auto list = Json::array();
    for (std::size_t i = 0; i < reported_.runs.size(); ++i) {
      if (!is_classifier(reported_.groups[reported_.runs[i].group])) continue;
      try {
        const auto points = points_of_each(most_roc_points, count, fewest_points_of_roc, most_points_of_roc);
        list.push_back(describe_classes(RunDirectory::open(reported_.runs[i].folder, ""), points));
        list.back()["run"] = i;
      } catch (const Error& error) {
        note(i, "no confusion matrix and no curves of its classes", error);
      }
    }
    return list;
  }

  std::string describe_curves() const {
    std::string text =
        "Lines are means over the seeds, bands one standard deviation; by time, tokens or operations, a point stands "
        "at their mean at its step. Drag to zoom, double-click to see everything, point at the chart for values, click "
        "a name to hide it.";
    if (averaged_ > 1)
      text += fmt::format(
          " Long curves are thinned: a point of a training curve is the mean of up to {} lines of the "
          "log, of other curves only every n-th point is shown.",
          averaged_);
    return text;
  }

  std::string describe_texts() const {
    const bool writes =
        std::ranges::find(reported_.groups, "language_model", &ReportedGroup::task) != reported_.groups.end();
    std::string text = "The answers of all runs to the same prompt (bold).";
    if (writes)
      text += fmt::format(" Language models: {} tokens, temperature {}, seed {}.", options_.prompt.tokens,
                          options_.prompt.temperature, options_.prompt.seed);
    return text;
  }

  std::string describe_inspection() const {
    const auto* text_read = options_.text ? "the given text"
                            : options_.prompt.prompt
                                ? "the given prompt, which language models continue"
                                : "the same text, for tasks with texts one of its validation split";
    auto text = fmt::format("The first run of each group reads up to {} tokens of {}.", CheckpointReader::limits.tokens,
                            text_read);
    if (not_inspected_ > 0)
      text += fmt::format(" {} more groups are left out, so that the page stays small.", not_inspected_);
    return text;
  }

  void write_overview_figures() {
    if (!figures_) return;
    std::vector<std::string> names;
    for (const auto& group : reported_.groups) names.push_back(group.name);
    for (const auto& view : views_of(curves_)) figures_->write("curves_" + view.name, figure_of(curves_, view, names));
    if (!reported_.comparison) return;
    const auto& comparison = *reported_.comparison;
    for (const auto& [name, figure] : figures_of(comparison)) figures_->write(name, figure);
    if (reported_.frontier) figures_->write("frontier", figure_of(*reported_.frontier, comparison));
  }

  // The heads of all groups may not fit into the page, so the references of other groups come first, then one group of
  // each mixer, then the rest.
  std::vector<std::size_t> visiting_order() const {
    std::set<fs::path> references;
    if (reported_.comparison)
      for (const auto& group : reported_.comparison->groups)
        references.insert(reported_.comparison->groups[group.reference].runs.front().folder);
    std::set<std::string> mixers;
    std::vector<int> rank;
    std::vector<std::size_t> order;
    for (const auto& run : reported_.runs) {
      const auto& settings = reported_.groups[run.group].settings;
      const auto list = settings.find("model.mixer");
      const auto mixer = list != settings.end() ? list : settings.find("model.mixer.kind");
      const bool is_new = mixer != settings.end() && mixers.insert(mixer->second).second;
      order.push_back(rank.size());
      rank.push_back(references.contains(run.folder) ? 0 : is_new ? 1 : 2);
    }
    std::ranges::stable_sort(order, {}, [&](auto run) { return rank[run]; });
    return order;
  }

  void add_checkpoints() {
    std::size_t read = 0;
    for (const auto i : visiting_order()) {
      throw_if_stopped();
      show_progress("texts and heads of", i, ++read);
      const auto& group = reported_.groups[reported_.runs[i].group];
      const bool first = group.runs.front() == i;
      if (!options_.with_texts && !first) continue;
      add_result(checkpoints_.read({.folder = reported_.runs[i].folder,
                                    .is_first = first,
                                    .has_room = matrix_bytes_ <= most_matrix_bytes,
                                    .group = group.name,
                                    .figures = figures_ ? &*figures_ : nullptr}),
                 i);
    }
    std::ranges::copy(checkpoints_.problems(), std::back_inserter(reported_.problems));
    for (auto* list : {&data_["texts"]["samples"], &data_["inspected"]})
      std::stable_sort(list->begin(), list->end(), [](const Json& a, const Json& b) { return a["run"] < b["run"]; });
  }

  void add_result(const CheckpointResult& result, std::size_t i) {
    std::ranges::copy(result.problems, std::back_inserter(reported_.problems));
    if (!result.text.is_null()) {
      auto& sample = data_["texts"]["samples"].emplace_back(Json{{"run", i}});
      sample.update(result.text);
    }
    if (!result.translations.empty()) add_translations(result, i);
    const bool fits = matrix_bytes_ + result.bytes <= most_matrix_bytes || data_["inspected"].empty();
    if (result.is_left_out || !fits) ++not_inspected_;
    if (!fits) return;
    matrix_bytes_ += result.bytes;
    const auto& name = reported_.groups[reported_.runs[i].group].name;
    for (const auto& part : result.inspections) {
      auto& json = data_["inspected"].emplace_back(part);
      json["run"] = i;
      json["name"] = fmt::format("{}{}, seed {}", part["part"].get<std::string>(), name, reported_.runs[i].seed);
    }
  }

  // Runs of the same data form one table.
  void add_translations(const CheckpointResult& result, std::size_t i) {
    auto& tables = data_["translations"];
    auto table =
        std::find_if(tables.begin(), tables.end(), [&](const Json& one) { return one["key"] == result.source_key; });
    if (table == tables.end()) {
      tables.push_back({{"key", result.source_key},
                        {"sources", checkpoints_.held_out_sources(result.source_key)},
                        {"answers", Json::array()}});
      table = std::prev(tables.end());
    }
    (*table)["answers"].push_back({{"run", i}, {"texts", result.translations}});
  }

  void show_progress(const char* what, std::size_t i, std::size_t place) const {
    log::progress(
        fmt::format("report: {} run {} of {}, {}", what, place, reported_.runs.size(), reported_.runs[i].name));
  }

  const ReportOptions& options_;
  CheckpointReader& checkpoints_;
  ReportedRuns reported_;
  std::optional<FigureFolder> figures_;
  CurveTable curves_;
  std::vector<std::vector<BlockPanel>> blocks_;  // by run
  std::size_t averaged_ = 1;                     // lines of a log in one point, at most
  Json data_;
  std::size_t matrix_bytes_ = 0, not_inspected_ = 0;
};

}  // namespace

Report RepeatedReport::make() { return ReportMaker(options_, checkpoints_).make(); }

std::string make_page(const std::string& title, const std::string& json, bool may_fetch) {
  const auto heading = figures::escape(title), palette = figures::palette_variables();
  // "<" could end the script element or start a comment in it. JSON has it only in strings, where it can be escaped.
  const auto data = replaced(json, "<", "\\u003c");
  return fill(embedded::html, {{"title", heading},
                               {"fetch_policy", may_fetch ? "; connect-src 'self'" : ""},
                               {"palette", palette},
                               {"style", embedded::style},
                               {"data", data},
                               {"d3_licence", embedded::d3_licence},
                               {"d3", embedded::d3},
                               {"script", embedded::script}});
}

Report make_report(const ReportOptions& options) { return RepeatedReport(options).make(); }

}  // namespace metaformer
