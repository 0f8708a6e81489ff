#pragma once
// Evaluations during a training: when, and of what.

#include "config/experiment_config.h"
#include "config/train_config.h"
#include "run/checkpoint_meta.h"
#include "run/metrics_log.h"
#include "run/run_directory.h"
#include "tasks/evaluation.h"
#include "tasks/task.h"
#include "train/step.h"

namespace metaformer {

// The last step is done, or train.patience ended training early.
bool is_finished(const TrainConfig& config, const Progress& progress);

// Every `interval` steps, and where training ends.
bool is_at(const TrainConfig& config, const Progress& progress, std::int64_t interval);

// An evaluation is due at this step and not done.
bool lacks_evaluation(const TrainConfig& config, const Progress& progress);

// At this step, once its evaluation is done.
bool is_checkpoint_due(const TrainConfig& config, const Progress& progress);

// Of a classifier, writes confusion_SPLIT.csv of the run from the scores of a whole split; not for more than
// most_confused_classes.
void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums);

// The metrics of the whole test split. Of a classifier, also writes the run's confusion_test.csv and, unless it was
// trained and is evaluated on one batch only (train.overfit_batch), test_predictions.safetensors. Processes of a group
// share the work; the first writes.
nlohmann::ordered_json report_test(const Scoring& scoring, const TrainConfig& train, const RunDirectory& run);

// Evaluations of a run in training, and which of them was the best.
class Evaluator {
 public:
  // Keeps references.
  Evaluator(const Task& task, Step& step);

  // Evaluates the weights at the step of `now` and writes the metrics. Returns `now` with them, and with the best so
  // far. Where training ends, a classifier's confusion table is written into the run. Throws Error (exit code 4) when
  // the validation loss is not finite, Interrupted when a signal asks to stop.
  Progress evaluate(const RunDirectory& run, const Progress& now, MetricsLog& metrics);

  // Metrics of the best checkpoint of a run on the test split, which nothing before has looked at; a classifier's
  // predictions and confusion table are written into the run, and of pairs the targets that greedy search writes are
  // scored. Leaves the model with the weights of that checkpoint.
  nlohmann::ordered_json test(const RunDirectory& run, const Progress& now, MetricsLog& metrics);

  // The batches of the validation split that an evaluation sees; with random batches only the last one.
  const EvaluationPart& part() const { return part_; }

  // Lets the task adapt the weights of a step, once (tasks/task.h).
  void adapt(std::int64_t step);

  // The weights of steps so far count no longer.
  void forget() { adapted_step_ = -1; }

 private:
  nlohmann::ordered_json estimate(std::int64_t step, MetricsLog& metrics);  // on random batches
  // On part() of the validation split, with the scores.
  nlohmann::ordered_json evaluate_part(std::int64_t step, MetricsLog& metrics, ScoreSums& sums);

  void describe_test() const;  // in the log, where it takes longer than another evaluation

  const ExperimentConfig& config_;
  const Task& task_;
  Step& step_;
  NetworkPredictor predictor_;
  Scoring scoring_;  // by processes that take turns in the batches
  EvaluationPart part_;
  std::int64_t adapted_step_ = -1;
};

}  // namespace metaformer
