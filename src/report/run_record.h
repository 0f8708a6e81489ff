#pragma once
// A finished run as a comparison sees it.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "config/experiment_config.h"
#include "run/checkpoint_meta.h"

namespace metaformer {

using Settings = std::map<std::string, std::string>;  // "model.mixer.kind" -> "quadratic", values as in YAML

// From its folder or from a row of a results file.
struct RunRecord {
  std::string key;        // digest of everything in the config that is not default, the seed included (config/writer.h)
  std::string config;     // as it was named: "shakespeare_metric.yaml"; of a folder without that, the folder's name
  std::string overrides;  // the other --set arguments, without train.seed: "model.layers=2 train.steps=100"
  std::int64_t seed = 0;

  Settings settings;  // changed_settings of its config

  // By id (tasks/measures.h): "val_loss", "test_accuracy", ... One that the run does not have is absent; none is NaN.
  std::map<std::string, double> measures;

  // Of a folder, where attention has collapsed: how, at the step that the measure collapse_step has.
  CollapseKind collapse = CollapseKind::none;
  double collapse_entropy = 0;

  std::string data;  // digest of the data and of how they are split; "": unknown
  std::string commit, cpu, threads;

  std::map<std::string, std::string> cells;  // of a row of a results file, by column

  std::string source;            // for messages: the folder, or "FILE.csv:LINE"
  std::filesystem::path folder;  // empty for a row of a results file

  // "shakespeare_metric.yaml model.layers=2"
  std::string name() const { return overrides.empty() ? config : config + " " + overrides; }
};

// Adds measures that follow from others. loss_gap: validation loss minus training loss; not where only that of training
// is smoothed. validation_score, of a classifier whose best checkpoint was chosen by a fraction (accuracy, AUC): one
// minus the error that chose it.
void add_derived_measures(RunRecord& record);
void remove_derived_measures(RunRecord& record);

// The config keys that are not default (config/writer.h), without train.seed.
Settings changed_settings(const ExperimentConfig& config);

// Every key that applies, from those that are not default. Nothing more than the given ones where this version of the
// program does not know one of them.
Settings all_settings(const Settings& changed);

}  // namespace metaformer
