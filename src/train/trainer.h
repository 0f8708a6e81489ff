#pragma once
// The training loop.

#include "config_reader/loader.h"
#include "run/run_summary.h"
#include "train/attention_watch.h"
#include "train/pending_losses.h"
#include "train/progress_line.h"
#include "train/rollback.h"
#include "train/saver.h"
#include "train/step_profiler.h"
#include "train/training_clock.h"

namespace metaformer {

class Trainer {
 public:
  // Builds model and optimiser; the run directory must exist. With a checkpoint, training goes on from it; else it
  // starts with the weights of train.init_from, if there are any. All processes of a group make the same steps
  // together; the first of them writes.
  Trainer(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device,
          ProcessGroup& group, const std::optional<Checkpoint>& checkpoint,
          const std::optional<InitialWeights>& initial);

  // What became of those weights.
  const std::optional<TakenWeights>& taken() const { return setup_.taken; }

  // Which part of the validation split its evaluations see.
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
  std::unique_ptr<MetricsLog> open_metrics(const LogPosition& position) const;
  void read_losses();                                   // takes them from the device; throws when they are not finite
  void write_training_line();                           // unless no step has come since the last one
  void write_diagnostics(const torch::Tensor& before);  // of the last step; `before`: the parameters before it
  void watch_attention();                               // where a look is due
  void write_sample();                                  // as far as due
  void evaluate();
  void evaluate_and_save();   // as far as due after a step; saves before it lets a stop signal through
  void make_up_evaluation();  // that the stop of an earlier process cut short
  void save();
  bool roll_back(const Error& error);  // false when the error is not to be mended
  RunSummary summary();

  const ExperimentConfig& config_;
  const RunDirectory& run_;
  const Task& task_;
  torch::Device device_;
  ProcessGroup& group_;
  Progress progress_;
  double learning_rate_ = 0;  // of the last step
  TrainingSetup setup_;
  Divergence divergence_;
  Evaluator evaluator_;
  Saver saver_;
  Rollback rollback_;
  PendingLosses losses_;
  ProgressLine line_;
  StreamDiagnostics diagnostics_;
  AttentionWatch attention_watch_;
  std::optional<TrainingClock> clock_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<StepProfiler> profiler_;
};

}  // namespace metaformer
