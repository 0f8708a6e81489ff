#pragma once
// The runs of a report and their groups: those of the comparison first, then the groups that it leaves out.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/grouping.h"

namespace metaformer {

struct ReportedRun {
  std::filesystem::path folder;
  std::string name;  // of the folder
  std::int64_t seed = 0;
  std::size_t group = 0;
  bool compared = false;          // the comparison counts it
  std::string state;              // "finished", or why it has no result
  std::optional<double> seconds;  // of training
  std::optional<AttentionCollapse> attention_collapse;
  nlohmann::ordered_json environment;
};

struct ReportedGroup {
  std::string name;
  std::string task;                             // kind
  std::map<std::string, std::string> settings;  // by config key: all that apply
  std::string config;                           // of the first run, as YAML
  std::vector<std::size_t> runs;
};

struct ReportedRuns {
  std::vector<ReportedRun> runs;
  std::vector<ReportedGroup> groups;
  std::optional<Comparison> comparison;  // nothing when no run is finished
  std::vector<std::string> problems;     // a line each: runs that could not be read, or are not compared
};

// Arguments as of find_runs. Errors: exit code 2 for one that names no run; those of compare_runs.
ReportedRuns read_reported_runs(const std::vector<std::string>& arguments, const ComparisonOptions& options);

// {"runs": [...], "groups": [...], "differing_keys", "comparison": to_json(Comparison), "costs" and "color" (the number
// of the page's group, or null) added; null without one}
nlohmann::ordered_json to_json(const ReportedRuns& runs);

}  // namespace metaformer
