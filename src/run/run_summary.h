#pragma once
// Results of a run: summary.json; for a classifier also confusion tables of the held-out splits, and
// SPLIT_predictions.safetensors with the probabilities for each text, to compare runs text by text.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/model_costs.h"
#include "run/checkpoint_meta.h"
#include "run/run_directory.h"
#include "tasks/evaluation.h"

namespace metaformer {

// The part that exists only for training in steps, not for the linear model.
struct StepwiseSummary {
  double ms_per_step = 0, tokens_per_second = 0;  // 0: not measured
  ModelCosts costs;
  std::optional<double> bytes_per_token;  // Task::bytes_per_token
  std::int64_t rollbacks = 0, spikes = 0, skipped_steps = 0, seed = 0;
  std::int64_t tokens = 0;                                   // seen in training
  std::optional<double> epochs;                              // nothing if epochs have no meaning
  double clipped_fraction = 0;                               // fraction of steps with clipped gradients
  std::int64_t evaluated_tokens = 0, validation_tokens = 0;  // of the last evaluation, and of the validation split
  double startup_seconds = 0, evaluation_seconds = 0, checkpoint_seconds = 0, wall_seconds = 0;
};

struct RunSummary {
  std::int64_t steps = 0;
  double train_loss = 0, val_loss = 0;  // the last values
  double best_val_loss = 0;
  double best_val_error = 0;  // by which the best checkpoint was selected (Measures::selection_error)
  std::int64_t best_step = 0;
  std::optional<Evaluation> validation;  // the last evaluation
  std::optional<Evaluation> test;        // of the best checkpoint; nothing without a test split
  std::optional<double> temperature;     // of the best checkpoint; only of a classifier
  bool stopped_early = false;
  std::int64_t parameters = 0, mixer_parameters = 0;
  std::optional<StepwiseSummary> stepwise;
  std::int64_t peak_memory_bytes = 0;
  double train_seconds = 0;
  std::string run;        // folder of the run
  NamedScores baselines;  // accuracies by split; may be empty
  std::optional<AttentionCollapse> attention_collapse = std::nullopt;
};

// A summary of the progress. The caller sets test, stopped_early, parameters, memory, stepwise and baselines.
RunSummary summary_of(const RunDirectory& run, const Progress& progress);

// The keys of summary.json (docs/run_directory.md), in their order.
nlohmann::ordered_json to_json(const RunSummary& summary);

// Replaces summary.json atomically.
void write_summary(const RunDirectory& run, const RunSummary& summary);

// Nothing when the file is missing or is not a JSON object. Values that are missing or of a wrong type are NaN or 0.
std::optional<RunSummary> read_summary(const RunDirectory& run);

// Predictions of the best checkpoint for a split, with the texts in the order of the source.
struct SplitPredictions {
  torch::Tensor probabilities_lv;  // float64, every row sums to 1
  torch::Tensor labels_l;          // int64, the true classes
};

// Nothing when the run has none. Errors (exit code 1): the file is damaged, or has other content.
std::optional<SplitPredictions> read_predictions(const RunDirectory& run, Split split);

// Writes confusion_SPLIT.csv of a classifier's run from the scores of a whole split; only for at most
// most_confused_classes classes.
void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums);

// Writes the predictions of a classifier's run, unless training and evaluation use one batch only
// (train.overfit_batch).
void write_predictions(const RunDirectory& run, const TrainConfig& train, const Task& task, Split split,
                       const ScoreSums& sums);

struct TestReport {
  Evaluation evaluation;
  std::vector<std::string> tables;  // lines for people; only of a classifier
};

// Evaluates the whole test split. For a classifier, also with the probabilities of this temperature; writes
// confusion_test.csv and the predictions. The processes of a group share the work; the first one writes.
TestReport report_test(const Scoring& scoring, const TrainConfig& train, const RunDirectory& run,
                       const std::optional<double>& temperature);

}  // namespace metaformer
