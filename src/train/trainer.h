#pragma once
// The training loop: steps, and what is due between them.

#include <optional>

#include "base/error.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "run/run_summary.h"
#include "tasks/task.h"
#include "train/diagnostics.h"
#include "train/evaluator.h"
#include "train/step.h"
#include "train/step_profiler.h"
#include "train/training_log.h"

namespace metaformer {

class Trainer {
 public:
  // Keeps references; the run directory must exist. Goes on from the checkpoint; without one (nullptr) it starts with
  // the weights that the step has. All processes of the step's group make the same steps together; the first of them
  // writes.
  Trainer(const RunDirectory& run, const Task& task, Step& step, const Checkpoint* checkpoint);

  // The part of the validation split that evaluations see.
  const EvaluationPart& evaluated() const { return evaluator_.part(); }

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
  void watch_attention();                               // where a look is due
  void write_sample();                                  // as far as due
  void evaluate();
  void evaluate_and_save();   // as far as due after a step; saves before it lets a stop signal through
  void make_up_evaluation();  // that the stop of an earlier process cut short

  // Saves the state as a checkpoint, after the lines of metrics.jsonl before it; the first one makes the run
  // runs/latest. Errors: as save_checkpoint; exit code 4, and nothing is saved, when weights or optimiser state are not
  // finite; exit code 6, when the processes' weights differ.
  void save();
  void require_finite() const;
  void require_same_weights() const;

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
  Evaluator evaluator_;
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
