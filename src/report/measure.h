#pragma once
// The measures of a run that comparisons show.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "run/checkpoint_meta.h"

namespace metaformer {

// One finished run as a comparison sees it: from its folder or from a row of a results file.
struct RunRecord {
  std::string key;     // digest of everything in the config that is not default, the seed included (config/changes.h)
  std::string config;  // as it was named: "shakespeare_metric.yaml"; of a folder without that, the folder's name
  std::string overrides;  // the other --set arguments, without train.seed: "model.layers=2 train.steps=100"
  std::int64_t seed = 0;

  // What is not default in the config, without train.seed: "model.mixer.kind" -> "quadratic", values as in YAML.
  std::map<std::string, std::string> settings;

  // Numbers by the name of their column: "val_loss", "test_accuracy", "parameters", "train_seconds", ... (`Metric`
  // describes those that are known). A number that the run does not have is absent; none is NaN.
  std::map<std::string, double> metrics;

  std::optional<AttentionCollapse> attention_collapse = std::nullopt;  // of a folder, where training has found one

  std::string data;  // digest of the data and of how they are split; "": unknown
  std::string commit, cpu, threads;

  std::map<std::string, std::string> cells;  // of a row of a results file: what stands there, by column

  std::string source;            // for messages: the folder, or "FILE.csv:LINE"
  std::filesystem::path folder;  // empty for a row of a results file

  // "shakespeare_metric.yaml model.layers=2"
  std::string name() const { return overrides.empty() ? config : config + " " + overrides; }
};

// The numbers of a run that comparisons show, and how they are written.
enum class Better { lower, higher, neither };

struct Metric {
  std::string name;   // the column of results files: "val_loss"
  std::string title;  // "validation loss", "test accuracy %"
  double scale = 1;   // what values are multiplied by to be shown: 100 for percentages
  int digits = 4;     // after the decimal point; 0: a whole number with commas, shown without a deviation
  Better better = Better::neither;
};

// The metric of that name; of an unknown name one that is shown as it is.
Metric metric_of(const std::string& name);

// Whether the program writes such a column itself.
bool is_known_metric(const std::string& name);

// A run need not have a number of it: a sorter that is never perfect, attention that does not collapse.
bool may_be_absent(const std::string& name);

// The results to compare unless others are asked for, in the order in which they are shown, of runs that have numbers
// of these names: of classifiers those on the test split, of sorters the exact match, of language models the losses.
std::vector<std::string> default_metrics(const std::set<std::string>& present);

// Time and size: shown for every group, never tested for differences unless asked for.
const std::vector<std::string>& cost_metrics();

// A value in the metric's scale and digits: "1.8478", "88.61", "804,096".
std::string shown(const Metric& metric, double value);

// A difference, with its sign: "+0.0337".
std::string shown_difference(const Metric& metric, double value);

// Metrics of a run that follow from others, so that results files do not hold them.

// loss_gap: validation loss minus training loss; not where only that of training is smoothed. validation_score, of a
// classifier whose best checkpoint was chosen by a fraction (accuracy, AUC): one minus the error that chose it.
void add_derived_metrics(RunRecord& record);
void remove_derived_metrics(RunRecord& record);

}  // namespace metaformer
