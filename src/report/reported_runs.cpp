#include "report/reported_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "config/loader.h"
#include "config/writer.h"
#include "report/compare_runs.h"
#include "report/grouping.h"
#include "report/page.h"
#include "report/run_records.h"
#include "run/run_directory.h"
#include "run/run_summary.h"

namespace metaformer {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

using Settings = std::map<std::string, std::string>;

// Puts runs into groups as they are read.
class Collector {
 public:
  explicit Collector(ReportedRuns& result) : result_(result) {
    if (!result.comparison) return;
    const auto names = short_names(result.comparison->groups);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& group = result.comparison->groups[i];
      for (const auto& run : group.runs) compared_[run.folder] = i;
      add_group(names[i]);
    }
  }

  void add(const fs::path& folder) {
    const auto run = RunDirectory::open(folder, "");
    const auto config = load_run_experiment(run.config_file()).config;
    const auto changed = changed_settings(config);
    ReportedRun reported{.folder = folder, .name = name_of(folder), .seed = config.train.seed};
    const auto found = compared_.find(folder);
    reported.compared = found != compared_.end();
    if (!reported.compared && is_duplicate(changed, config.train.seed)) return;
    reported.group = reported.compared ? found->second : group_of(changed, reported.name);
    auto& group = result_.groups[reported.group];
    if (group.runs.empty()) describe(group, changed, config);
    changed_[reported.group] = changed;
    group.runs.push_back(result_.runs.size());
    const auto summary = read_summary(run);
    reported.state = summary ? "finished" : state_of(folder);
    if (summary) reported.seconds = summary->train_seconds;
    if (summary) reported.attention_collapse = summary->attention_collapse;
    reported.environment = read_environment(run);
    result_.runs.push_back(std::move(reported));
  }

  // A group of the comparison whose runs are rows of a results file has nothing to show.
  void drop_empty_groups() {
    std::vector<std::size_t> place(result_.groups.size());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < result_.groups.size(); ++i) {
      place[i] = kept;
      if (result_.groups[i].runs.empty()) continue;
      if (kept != i) result_.groups[kept] = std::move(result_.groups[i]);
      ++kept;
    }
    result_.groups.resize(kept);
    for (auto& run : result_.runs) run.group = place[run.group];
  }

 private:
  static std::string name_of(const fs::path& folder) { return fs::weakly_canonical(folder).filename().string(); }

  std::size_t add_group(const std::string& name) {
    result_.groups.push_back({.name = name});
    changed_.emplace_back();
    return result_.groups.size() - 1;
  }

  std::size_t group_of(const Settings& changed, const std::string& name) {
    for (std::size_t i = 0; i < changed_.size(); ++i)
      if (changed_[i] == changed) return i;
    return add_group(name);
  }

  // Whether the comparison has another run of the config and seed.
  bool is_duplicate(const Settings& changed, std::int64_t seed) const {
    if (!result_.comparison) return false;
    const auto& groups = result_.comparison->groups;
    return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
      const auto has_seed = [&](const auto& run) { return run.seed == seed && run.settings == changed; };
      return std::any_of(group.runs.begin(), group.runs.end(), has_seed);
    });
  }

  static void describe(ReportedGroup& group, const Settings& changed, const ExperimentConfig& config) {
    group.task = kind_of(config.task);
    group.settings = all_settings(changed);
    group.config = config_to_yaml(config);
  }

  std::string state_of(const fs::path& folder) const {
    const auto start = folder.string() + ": left out: ";
    for (const auto& problem : result_.problems)
      if (problem.starts_with(start)) return problem.substr(start.size());
    return "unfinished";
  }

  ReportedRuns& result_;
  std::map<fs::path, std::size_t> compared_;      // group by folder
  std::vector<std::optional<Settings>> changed_;  // of each group; nothing before its first run
};

std::vector<std::string> differing_keys(const std::vector<ReportedGroup>& groups) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::size_t> counts;
  for (const auto& group : groups)
    for (const auto& [key, value] : group.settings) {
      values[key].insert(value);
      ++counts[key];
    }
  std::vector<std::string> keys;
  for (const auto& [key, all] : values)
    if (all.size() > 1 || counts[key] < groups.size()) keys.push_back(key);
  return keys;
}

std::string text_of(const Json& json, const char* key) {
  const auto value = json.is_object() ? json.value(key, Json()) : Json();
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

Json describe_environment(const Json& environment) {
  Json result = Json::object();
  for (const char* key : {"commit", "threads", "torch", "compiler", "host"}) result[key] = text_of(environment, key);
  result["commit"] = result["commit"].get<std::string>().substr(0, 12) +
                     (environment.is_object() && environment.value("dirty", Json()) == true ? " (changed)" : "");
  result["device"] = fmt::format("{} {}", text_of(environment, "device"), text_of(environment, "device_name"));
  const auto sessions = environment.is_object() ? environment.value("sessions", Json()) : Json();
  result["started"] = sessions.is_array() && !sessions.empty() ? text_of(sessions.front(), "started") : "";
  std::string command;
  const auto words = environment.is_object() ? environment.value("command", Json()) : Json();
  for (const auto& word : words)
    if (word.is_string()) command += (command.empty() ? "" : " ") + word.get<std::string>();
  result["command"] = command;
  return result;
}

Json describe(const Comparison& comparison, const ReportedRuns& runs) {
  auto json = to_json(comparison);
  json["costs"] = Json::array();
  for (const auto& name : cost_metrics()) {
    const auto metric = metric_of(name);
    json["costs"].push_back(
        {{"name", name}, {"title", metric.title}, {"scale", metric.scale}, {"digits", metric.digits}});
  }
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& folder = comparison.groups[i].runs.front().folder;
    const auto run =
        std::find_if(runs.runs.begin(), runs.runs.end(), [&](const auto& r) { return r.folder == folder; });
    json["groups"][i]["color"] = run == runs.runs.end() ? Json() : Json(run->group);
  }
  return json;
}

}  // namespace

ReportedRuns read_reported_runs(const std::vector<std::string>& arguments, const ComparisonOptions& options) {
  ReportedRuns result;
  auto found = find_runs(arguments);
  result.problems = std::move(found.problems);
  if (!found.runs.empty()) result.comparison = compare_runs(std::move(found.runs), options);
  Collector collector(result);
  for (const auto& folder : find_run_folders(arguments)) {
    try {
      collector.add(folder);
    } catch (const Error& error) {
      const auto line = fmt::format("{}: left out: {}", folder.string(), error.what());
      if (std::find(result.problems.begin(), result.problems.end(), line) == result.problems.end())
        result.problems.push_back(line);
    }
  }
  collector.drop_empty_groups();
  if (result.comparison)
    result.problems.insert(result.problems.end(), result.comparison->notes.begin(), result.comparison->notes.end());
  return result;
}

Json to_json(const ReportedRuns& reported) {
  const auto keys = differing_keys(reported.groups);
  Json json = {{"runs", Json::array()}, {"groups", Json::array()}, {"differing_keys", keys}};
  for (const auto& run : reported.runs)
    json["runs"].push_back({{"name", run.name},
                            {"seed", run.seed},
                            {"group", run.group},
                            {"state", run.state},
                            {"attention_collapse", run.attention_collapse ? to_json(*run.attention_collapse) : Json()},
                            {"time", run.seconds ? rounded(*run.seconds) : Json()},
                            {"environment", describe_environment(run.environment)}});
  for (const auto& group : reported.groups) {
    Json settings = Json::object();
    for (const auto& key : keys)
      if (const auto found = group.settings.find(key); found != group.settings.end()) settings[key] = found->second;
    json["groups"].push_back({{"name", group.name},
                              {"task", group.task},
                              {"settings", settings},
                              {"config", group.config},
                              {"runs", group.runs}});
  }
  json["comparison"] = reported.comparison ? describe(*reported.comparison, reported) : Json();
  json["problems"] = reported.problems;
  return json;
}

}  // namespace metaformer
