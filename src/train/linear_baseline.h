#pragma once
// The linear model over n-grams: trained as model.kind linear, and as the baseline of a network.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "config/loader.h"
#include "run/run_directory.h"
#include "run/run_summary.h"
#include "tasks/task.h"

namespace metaformer {

// Fits the model to the training split of a classification task, evaluates it, and writes the files of a training of
// one step except summary.json: checkpoints/step-1 and metrics.jsonl. Returns the summary. The weights are
// deterministic. Throws Interrupted when a signal asks to stop; nothing is saved then.
RunSummary train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device);

struct BaselineComparison {
  NamedScores accuracies;          // of "majority" and "linear" by split; may be empty
  std::vector<std::string> table;  // lines for the log; empty without accuracies
};

// Compares the accuracies of a run by split ("validation") with those of the baselines on the held-out splits. The
// baselines are the majority class and a linear model, for a network that classifies and was trained on a whole corpus,
// unless task.baselines is off. For other runs the result is empty, and also, with a warning, if the baselines cannot
// be computed. `description`: Task::description. Throws only Interrupted.
BaselineComparison compare_with_baselines(const ExperimentConfig& config, const nlohmann::ordered_json& description,
                                          const Scores& accuracies, bool offline,
                                          const std::string& name = "this network");

// The lines of a table of accuracies by split: the baselines, and below them those of the run, which is called `name`.
std::vector<std::string> baseline_table(NamedScores baselines, const Scores& accuracies,
                                        const std::string& name = "this network");

}  // namespace metaformer
