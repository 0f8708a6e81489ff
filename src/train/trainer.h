#pragma once
// The training loop: steps, and what is due between them.

#include <optional>

#include "base/error.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "run/run_summary.h"
#include "tasks/evaluation.h"
#include "tasks/task.h"
#include "train/diagnostics.h"
#include "train/step.h"
#include "train/step_profiler.h"
#include "train/training_log.h"

namespace metaformer {

// The last step is done, or train.patience ended training early.
bool is_finished(const TrainConfig& config, const Progress& progress);

class Trainer {
 public:
  // Keeps references; the run directory must exist. Goes on from the checkpoint; without one (nullptr) it starts with
  // the weights that the step has. All processes of the step's group make the same steps together; the first of them
  // writes.
  Trainer(const RunDirectory& run, const Task& task, Step& step, const Checkpoint* checkpoint);

  // The part of the validation split that evaluations see; with random batches only the last one.
  const EvaluationPart& evaluated() const { return part_; }

  // Records a few of the coming steps and reports time by operator.
  void profile();

  // Trains to the last step and returns the summary, without baselines. Throws Error (exit code 4) when the loss is not
  // finite, Interrupted after saving when a stop signal arrives.
  RunSummary run();

 private:
  void advance();  // one step and what is due after it
  void train_step();
  StepResult run_step();
  void open_metrics(std::int64_t rollbacks);            // to go on from progress_
  void read_losses();                                   // takes them from the device; throws when they are not finite
  void write_training_line();                           // unless no step has come since the last one
  void write_diagnostics(const torch::Tensor& before);  // of the last step; `before`: the parameters before it
  void write_sample();                                  // as far as due
  bool is_at(std::int64_t interval) const;              // every `interval` steps, and where training ends
  bool lacks_evaluation() const;                        // one is due at this step and not done
  bool is_checkpoint_due() const;                       // at this step, once its evaluation is done

  void adapt();  // lets the task adapt the weights of a step, once (tasks/task.h)
  void evaluate();
  // The progress with the metrics of its step, and with the best so far. Where training ends, a classifier's confusion
  // table is written into the run. Throws Error (exit code 4) when the validation loss is not finite, Interrupted when
  // a signal asks to stop.
  Progress evaluated_progress();
  // Metrics of the best checkpoint on the test split, which nothing before has looked at; a classifier's predictions
  // are written into the run, and of pairs the targets that greedy search writes are scored. Leaves the model with the
  // weights of that checkpoint.
  nlohmann::ordered_json test();
  void evaluate_and_save();  // as far as due after a step; saves before it lets a stop signal through

  // Saves the state as a checkpoint, after the lines of metrics.jsonl before it; the first one makes the run
  // runs/latest. Errors: as save_checkpoint; exit code 4, and nothing is saved, when weights or optimiser state are not
  // finite; exit code 6, when the processes' weights differ.
  void save();

  // train.divergence.action: rollback. Goes back to an earlier state; false when the error is no divergence, or the
  // config allows no rollback or none any more.
  bool roll_back(const Error& error);
  void go_back();  // to the state of the newest checkpoint that is to be trusted, or to the start
  RunSummary summary();

  const RunDirectory& run_;
  const Task& task_;
  Step& step_;
  const ExperimentConfig& config_;
  ProcessGroup& group_;
  torch::Tensor initial_values_;  // of the parameters, where a rollback may need them
  Progress progress_;
  NetworkPredictor predictor_;
  Scoring scoring_;  // by processes that take turns in the batches
  EvaluationPart part_;
  std::int64_t adapted_step_ = -1;
  std::vector<StepResult> pending_;  // results that nobody has read: reading waits for the device
  double last_norm_ = 0;             // gradient norm of the last step that was read
  ProgressLine line_;
  StreamDiagnostics diagnostics_;
  AttentionWatch attention_watch_;
  std::optional<TrainingClock> clock_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<StepProfiler> profiler_;
  bool is_linked_ = false;  // runs/latest leads to the run
};

}  // namespace metaformer
