#pragma once
// A comparison of groups of runs that differ only in their seed; compare_runs.h makes it.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compare/metric.h"
#include "compare/paired_statistics.h"
#include "compare/run_record.h"

namespace metaformer {

struct ComparisonOptions {
  std::string reference;             // a group's name, short name or number, a run's folder, or a config; "": the first
  std::string by;                    // a config key: compares only groups that are equal in it; "": all
  std::vector<std::string> metrics;  // empty: default_metrics() of what any run has
  std::optional<double> margin;      // in the unit of the shown metric: 0.5 with percentages is half a point
};

// A metric of one group. Values are as in the run, not in the metric's scale; the margin is in that scale.
struct GroupMetric {
  std::map<std::int64_t, double> values;  // by seed
  Summary summary;
  std::optional<PairedDifference> difference;  // to the reference: not of the reference itself, nor without pairs
};

struct ComparedGroup {
  std::string name;       // of its first run: "shakespeare_metric.yaml model.layers=2"; unique within a comparison
  std::size_t reference;  // the group that this one is compared with: its own index for a reference
  std::vector<RunRecord> runs;                  // by seed as given
  std::map<std::string, std::string> settings;  // values of Comparison::differing_keys; absent: no such key
  std::map<std::string, GroupMetric> metrics;   // by name; those of cost_metrics() too, without differences
  std::vector<McNemarTest> mcnemar;             // by seed; empty without predictions
};

struct Comparison {
  std::vector<Metric> metrics;              // in the order shown
  std::vector<ComparedGroup> groups;        // in the order of their first runs
  std::vector<std::string> differing_keys;  // config keys that are not equal in all groups
  std::string by;                           // as in the options
  std::optional<double> margin;
  std::vector<std::string> notes;  // which runs were left out of what, and why; a line each, for stderr
};

// {"margin", "differing_keys", "metrics": [{"name", "title", "scale", "digits"}], "groups": [{"name", "short_name",
// "reference": its name, "settings", "runs": [{"seed", "source", "key", "attention_collapse" where there is one}],
// "metrics": {NAME: {"n", "mean", "sd", "values", "difference": {"pairs", "mean", "low", "high", "p", "equivalent"}}},
// "mcnemar": [...]}], "notes"}. Numbers are as in the runs, not in the metric's scale.
nlohmann::ordered_json to_json(const Comparison& comparison);

}  // namespace metaformer
