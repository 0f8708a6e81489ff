#pragma once
// One finished run as a comparison sees it: from its folder or from a row of a results file.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "run/progress.h"

namespace metaformer {

struct RunRecord {
  std::string key;     // digest of everything in the config that is not default, the seed included (config/changes.h)
  std::string config;  // as it was named: "shakespeare_metric.yaml"; of a folder without that, the folder's name
  std::string overrides;  // the other --set arguments, without train.seed: "model.layers=2 train.steps=100"
  std::int64_t seed = 0;

  // What is not default in the config, without train.seed: "model.mixer.kind" -> "quadratic", values as in YAML.
  std::map<std::string, std::string> settings;

  // Numbers by the name of their column: "val_loss", "test_accuracy", "parameters", "train_seconds", ... (metric.h
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

}  // namespace metaformer
