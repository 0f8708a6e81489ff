#pragma once
// Groups of runs that differ only in their seed.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "report/measure.h"
#include "report/paired_statistics.h"

namespace metaformer {

// A comparison of groups of runs that differ only in their seed; compare_runs.h makes it.
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

// Short names of the groups of a comparison, for tables and legends.

// "a" for "a.yaml".
std::string without_ending(const std::string& name);

// By group: without ".yaml", without what all configs start with up to an underscore, without the overrides that all
// groups have, keys by their last part: "quadratic score_std=0.3" for "shakespeare_quadratic.yaml
// model.mixer.score_std=0.3". Only the overrides where all are of one config, only the config where each has its own.
// Unique: where two would be the same, all are whole.
std::vector<std::string> short_names(const std::vector<ComparedGroup>& groups);

// The config keys of a run as "KEY" -> "VALUE in YAML".

// Those that are not default (config/changes.h), without train.seed.
std::map<std::string, std::string> changed_settings(const ExperimentConfig& config);

// Every key that applies, from those that are not default. Nothing more than the given ones where this version of the
// program does not know one of them.
std::map<std::string, std::string> all_settings(const std::map<std::string, std::string>& changed);

// Puts runs that differ only in their seed into groups, and says what differs between the groups.

// Groups in the order of their first runs, without metrics; each is its own reference. Runs of other data than the
// first one (with a key `by`: than the first with its value of that key), and second runs of a group with the same
// seed, are named in the notes and left out.
std::vector<ComparedGroup> group_runs(std::vector<RunRecord> given, const std::string& by,
                                      std::vector<std::string>& notes);

// The config keys that are not equal in all groups, sorted, and their values into ComparedGroup::settings.
std::vector<std::string> find_differing_keys(std::vector<ComparedGroup>& groups);

// Sets every group's reference: the group that `reference` names, or the first one; with `by`, of those that are equal
// in that key. Errors (exit code 2): no such group, several of them, or no group with such a key.
void choose_references(std::vector<ComparedGroup>& groups, const ComparisonOptions& options);

}  // namespace metaformer
