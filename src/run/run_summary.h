#pragma once
// Results of a run: summary.json; on held-out splits a classifier's confusion tables and test_predictions.safetensors,
// its probabilities for each test text, to compare it with others text by text.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/model_costs.h"
#include "run/checkpoint_meta.h"
#include "run/run_directory.h"
#include "tasks/evaluation.h"

namespace metaformer {

// The part that only training by steps has.
struct StepwiseSummary {
  double ms_per_step = 0, tokens_per_second = 0;  // 0: not measured
  ModelCosts costs;
  std::optional<double> bytes_per_token;  // Task::bytes_per_token
  std::int64_t rollbacks = 0, spikes = 0, skipped_steps = 0, seed = 0;
  std::int64_t tokens = 0;                                   // seen in training
  std::optional<double> epochs;                              // nothing where epochs have no meaning
  double clipped_fraction = 0;                               // of the steps
  std::int64_t evaluated_tokens = 0, validation_tokens = 0;  // of the last evaluation, and of the validation split
  double startup_seconds = 0, evaluation_seconds = 0, checkpoint_seconds = 0, wall_seconds = 0;
};

struct RunSummary {
  std::int64_t steps = 0;
  double train_loss = 0, val_loss = 0;  // the last ones
  double best_val_loss = 0;
  double best_val_error = 0;  // of the best, which it chose (Measures::selection_error)
  std::int64_t best_step = 0;
  std::optional<Evaluation> validation;  // the last evaluation
  std::optional<Evaluation> test;        // that of the best checkpoint; nothing: no test split
  bool stopped_early = false;
  std::int64_t parameters = 0, mixer_parameters = 0;
  std::optional<StepwiseSummary> stepwise;
  std::int64_t peak_memory_bytes = 0;
  double train_seconds = 0;
  std::string run;        // its folder
  NamedScores baselines;  // accuracies by split; empty: none
  std::optional<AttentionCollapse> attention_collapse = std::nullopt;
};

// A summary of the progress. The caller sets test, stopped_early, parameters, memory, stepwise and baselines.
RunSummary summary_of(const RunDirectory& run, const Progress& progress);

// The keys of summary.json (docs/run_directory.md), in their order.
nlohmann::ordered_json to_json(const RunSummary& summary);

// Replaces summary.json at once.
void write_summary(const RunDirectory& run, const RunSummary& summary);

// Nothing when there is no such file or it cannot be read. Numbers that it does not have are NaN or 0.
std::optional<RunSummary> read_summary(const RunDirectory& run);

// Predictions of the best checkpoint, texts in the order of the source.
struct TestPredictions {
  torch::Tensor probabilities_lv;  // float64, every row sums to 1
  torch::Tensor labels_l;          // int64, the true classes
};

// Nothing when the run has none. Errors (exit code 1): the file is damaged, or is not such a file.
std::optional<TestPredictions> read_test_predictions(const RunDirectory& run);

// Writes confusion_SPLIT.csv of a classifier's run from the scores of a whole split; not for more than
// most_confused_classes.
void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums);

// The evaluation of the whole test split. Of a classifier, also writes the run's confusion_test.csv and, unless it was
// trained and is evaluated on one batch only (train.overfit_batch), the predictions. Processes of a group share the
// work; the first writes.
Evaluation report_test(const Scoring& scoring, const TrainConfig& train, const RunDirectory& run);

}  // namespace metaformer
