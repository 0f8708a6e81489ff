#pragma once
// Finished runs, and the comparison of groups of runs that differ only in their seed.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "report/statistics.h"
#include "run/checkpoint_meta.h"
#include "tasks/measures.h"

namespace metaformer {

using Settings = std::map<std::string, std::string>;  // "model.mixer.kind" -> "quadratic", values as in YAML

// A finished run, from its folder or from a row of a results file.
struct RunRecord {
  std::string key;        // digest of everything in the config that is not default, the seed included (config/writer.h)
  std::string config;     // name of the config file: "shakespeare_metric.yaml"; if it is unknown, of the run's folder
  std::string overrides;  // the other --set arguments, without train.seed: "model.layers=2 train.steps=100"
  std::int64_t seed = 0;

  Settings settings;  // changed_settings of its config

  // By id (tasks/measures.h): "val_loss", "test_accuracy", ... Measures that the run does not have are absent; none is
  // NaN.
  std::map<std::string, double> measures;

  std::optional<AttentionCollapse> collapse;  // only for a run from a folder

  std::string data;  // digest of the data and of how they are split; "": unknown
  std::string commit, cpu, threads;

  std::map<std::string, std::string> cells;  // of a row of a results file, by column

  std::string source;            // for messages: the folder, or "FILE.csv:LINE"
  std::filesystem::path folder;  // empty for a row of a results file

  // "shakespeare_metric.yaml model.layers=2"
  std::string name() const { return overrides.empty() ? config : config + " " + overrides; }
};

// Adds measures that follow from others. loss_gap: validation minus training loss, unless the training loss is
// smoothed. validation_score, for a classifier whose best checkpoint was selected by a fraction (accuracy, AUC): one
// minus its error.
void add_derived_measures(RunRecord& record);

// "" if there is no such key.
std::string value_of(const Settings& settings, const std::string& key);

// The config keys that are not default (config/writer.h), without train.seed.
Settings changed_settings(const ExperimentConfig& config);

// All keys that apply, from those that are not default; only these if this version does not know one of them.
Settings all_settings(const Settings& changed);

// The keys whose values differ between configs, sorted: keys that are not default in one of them. `changed`: what is
// not default in each config, `resolved`: all that applies.
std::vector<std::string> differing_keys(const std::vector<Settings>& changed, const std::vector<Settings>& resolved);

struct ComparisonOptions {
  // Each is a group's name, short name or number, a run's folder, or a config; with `by` at most one for each value.
  // Empty: the first group.
  std::vector<std::string> references;
  std::string by;                     // a config key: compares only groups with the same value of it; "": all
  std::vector<std::string> measures;  // by id; empty: default_measures() of those that any run has
  std::vector<std::string> frontier;  // two measures for a frontier (report/frontier.h), or none
  std::optional<double> margin;       // in the unit that is shown: 0.5 with percentages is half a point
};

// A measure of one group. Values are as in the run, not in the measure's scale; the margin is in that scale.
struct GroupMeasure {
  std::map<std::int64_t, double> values;  // by seed
  Summary summary;
  std::optional<PairedDifference> difference;  // to the reference; absent for the reference itself, and without pairs
};

struct ComparedGroup {
  std::string name;       // of its first run: "shakespeare_metric.yaml model.layers=2"; unique within a comparison
  std::size_t reference;  // the group that this one is compared with: its own index for a reference
  std::vector<RunRecord> runs;                   // in the given order, one for each seed
  Settings settings;                             // values of Comparison::differing_keys; absent: no such key
  std::map<std::string, GroupMeasure> measures;  // by id; those of cost_measures() too, without differences
  std::vector<McNemarTest> mcnemar;              // by seed; empty without predictions
};

struct Comparison {
  std::vector<Measure> measures;            // in the order shown
  std::vector<ComparedGroup> groups;        // in the order of their first runs
  std::vector<std::string> differing_keys;  // config keys that are not equal in all groups, sorted
  std::string by;                           // as in the options
  std::optional<double> margin;
  std::vector<std::string> notes;  // runs that are left out somewhere, with the reason; a line each, for stderr
};

// Compares groups of runs, paired by seed. Leaves out runs whose data differ from those of the first run (with `by`: of
// the first run with the same value of that key), and further runs with the same config and seed. The notes name every
// run that is left out somewhere. Errors (exit code 2): no run; no such reference, key or measure, or several such
// references.
Comparison compare_runs(std::vector<RunRecord> runs, const ComparisonOptions& options);

// Names of the groups for tables and legends: without ".yaml", without the common start of all configs up to an
// underscore, without the overrides that all groups have, with only the last part of keys: "quadratic score_std=0.3"
// for "shakespeare_quadratic.yaml model.mixer.score_std=0.3". If all groups have one config, only the overrides; if
// each has its own, only the config. The names are unique: if two would be the same, all names are whole.
std::vector<std::string> short_names(const std::vector<ComparedGroup>& groups);

// The groups with the settings in which they differ, a block for each measure (mean, standard deviation, number of
// runs, difference with its 95% interval, p value), McNemar's tests, time and size. Lines have about 100 columns.
std::string to_text(const Comparison& comparison);

// Markdown: a row for each group, with these columns after its name and its number of seeds. The default columns are
// every measure with its difference, time and parameters. MEASURE is mean ± standard deviation, MEASURE:difference the
// paired difference with its 95% interval, MEASURE:equivalent whether that lies inside the margin, MEASURE:worst the
// worst run, MEASURE:values those of all seeds; "mcnemar" the p values by seed, "settings" the config keys that differ.
// Errors (exit code 2): no such column.
std::string to_markdown(const Comparison& comparison, const std::vector<std::string>& columns = {});

// The ids of the measures in such columns.
std::vector<std::string> measures_of_columns(const std::vector<std::string>& columns);

// A line for each group and measure, with the columns group, metric, n, mean, sd, pairs, difference, low, high, p,
// equivalent. Numbers are as in the runs, not in the measure's scale.
std::string to_csv(const Comparison& comparison);

}  // namespace metaformer
