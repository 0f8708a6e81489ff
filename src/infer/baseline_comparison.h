#pragma once
// Decides what a result is compared with, for training and evaluation alike.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

struct BaselineComparison {
  nlohmann::ordered_json accuracies;  // infer/baseline_comparison.cpp; null where there is nothing to compare with
  std::vector<std::string> table;     // lines for people; none then
};

// Compares the metrics of a run by split ({"validation": {...}, "test": null}) with the baselines on the held-out
// splits. A classifier that is a network and was trained on a whole corpus is compared with the majority class and a
// linear model, unless task.baselines is off. Other runs are compared with nothing, nor is any run, with a warning,
// where the baselines cannot be computed. `description` of the data: TaskData::description. Throws Interrupted only.
BaselineComparison compare_with_baselines(const ExperimentConfig& config, const nlohmann::ordered_json& description,
                                          const nlohmann::ordered_json& metrics_by_split, bool offline);

// The lines of a table of accuracies: the baselines, and below them this network's metrics by split.
std::vector<std::string> baseline_table(const nlohmann::ordered_json& baselines,
                                        const nlohmann::ordered_json& metrics_by_split);

}  // namespace metaformer
