#pragma once
// The training loop: steps, evaluations, checkpoints and logs, and rollbacks when training diverges.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "config/experiment_config.h"
#include "config/train_config.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "run/run_summary.h"
#include "tasks/evaluation.h"
#include "train/diagnostics.h"
#include "train/step.h"
#include "train/step_profiler.h"

namespace metaformer {

// Takes the gradient norm of one step. True for a spike: log(norm) lies more than `threshold` standard deviations above
// its running mean. The first 20 steps are never spikes; spikes and norms that are not finite do not enter the mean.
// threshold 0: never a spike.
bool is_spike(SpikeState& state, double norm, double threshold);

// The factor by which the rollbacks so far lower the learning rate (train.divergence.action: rollback); 1 without
// rollbacks.
double rollback_factor(const TrainConfig& config, const Progress& progress);

// Progress bar.
class ProgressLine {
 public:
  ProgressLine(const TrainConfig& config, double tokens_per_step)
      : config_(config), tokens_per_step_(tokens_per_step) {}

  // The losses of `count` steps; the line shows a mean over about the last 50, in which later steps weigh more.
  void add_losses(double sum, std::int64_t count);
  void add_evaluation(double seconds);

  // Steps skipped so far because gradients overflowed in fp16. The line shows their number if it is not 0.
  void set_skipped_steps(std::int64_t count) { skipped_steps_ = count; }

  // Cheap to call every step; formats only when something will be shown.
  bool is_due() const { return timer_.is_due(); }

  // `seconds_per_step`: of training only; 0 while unknown.
  void show(std::int64_t step, double learning_rate, double seconds_per_step);

  // Writes the line to train.log only, unless it already has that step.
  void record(std::int64_t step, double learning_rate, double seconds_per_step);

  // "step 20/100  loss 2.5000  lr 1.00e-03  12.3k tokens/s  ETA 12s". The ETA covers the remaining steps and, once one
  // was timed, the remaining evaluations.
  std::string text(std::int64_t step, double learning_rate, double seconds_per_step) const;

 private:
  const TrainConfig& config_;
  double tokens_per_step_;
  LineTimer timer_, record_timer_;
  std::int64_t recorded_step_ = -1;
  double loss_sum_ = 0, loss_weight_ = 0;
  double evaluation_seconds_ = 0;
  std::int64_t evaluations_ = 0;
  std::int64_t skipped_steps_ = 0;
};

// "mixer metric, 4 layers, 4 heads, width 128, context 256"; "lstm, 2 layers, width 128, context 64".
std::string describe_model(const ExperimentConfig& config);

// Whether the last step is done, or train.patience or task.enough has ended training early.
bool is_finished(const ExperimentConfig& config, const Progress& progress);

class Trainer {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps references; the run directory must exist. Resumes from the checkpoint; without one (nullptr) it starts with
  // the weights of `step`. All processes of the step's group make the same steps together; the first one writes.
  Trainer(const RunDirectory& run, const Task& task, Step& step, const Checkpoint* checkpoint);

  // The part of the validation split that evaluations use; with random evaluation only the last one uses it.
  const EvaluationPart& evaluated() const { return part_; }

  // Records a few of the coming steps and reports time by operator.
  void profile();

  // Writes what has changed with this resume as a line of split `resume`. To be called before run.
  void write_resume_line(const nlohmann::ordered_json& changes) { metrics_->write(progress_.step, "resume", changes); }

  // Trains to the last step and returns the summary, without baselines. Throws Error (exit code 4) when the loss is not
  // finite, Interrupted after saving when a stop signal arrives.
  RunSummary run();

 private:
  void advance();  // one step, then evaluation, checkpoint and log lines that are due
  void train_step();
  StepResult run_step();
  double wall_seconds() const;      // of all processes that trained the run
  double seconds_per_step() const;  // of training, in this process, without its first step; 0 while unknown
  void count_training(Clock::time_point start);         // adds the training time since `start`
  void open_metrics(std::int64_t rollbacks);            // to continue from progress_
  void read_losses();                                   // copies them from the device; throws if they are not finite
  void write_training_line();                           // unless there is no step since the last line
  void write_diagnostics(const torch::Tensor& before);  // of the last step; `before`: the parameters before it
  void write_sample();                                  // if it is due
  bool is_at(std::int64_t interval) const;              // true every `interval` steps, and at the end of training
  bool lacks_evaluation() const;                        // an evaluation is due at this step and not done
  bool is_checkpoint_due() const;                       // at this step, once its evaluation is done

  void adapt();  // lets the task adapt the weights of a step, once (tasks/task.h)
  void evaluate();
  // The progress with the evaluation of its step and the best so far; at the end also writes a classifier's confusion
  // table. Throws Error (exit code 4) when the validation loss is not finite, Interrupted.
  Progress evaluated_progress();
  void load_best();  // the weights of the best checkpoint into the model
  // Evaluates the model on the test split; for pairs also scores the targets that greedy search generates.
  Evaluation test();
  std::optional<double> temperature_of_best() const;  // nothing, too, if that checkpoint cannot be read
  void evaluate_and_save();  // if due after a step; after a stop signal saves, then throws Interrupted

  // Saves the state as a checkpoint, after syncing metrics.jsonl. The first checkpoint makes the run runs/latest.
  // Errors: as save_checkpoint; exit code 4, and nothing is saved, when weights or optimiser state are not finite; exit
  // code 6, when the processes' weights differ.
  void save();

  // train.divergence.action: rollback. Goes back to an earlier state. False when the error is not a divergence, or when
  // the config allows no rollback, or no further one.
  bool roll_back(const Error& error);
  void go_back();  // to the checkpoint of load_rollback_checkpoint, or to the start
  RunSummary summary();

  const RunDirectory& run_;
  const Task& task_;
  Step& step_;
  const ExperimentConfig& config_;
  ProcessGroup& group_;
  torch::Tensor initial_values_;  // of the parameters, if a rollback may need them
  Progress progress_;
  NetworkPredictor predictor_;
  Scoring scoring_;  // the processes share the batches
  EvaluationPart part_;
  std::int64_t adapted_step_ = -1;
  std::vector<StepResult> pending_;  // results not read yet: reading waits for the device
  double last_norm_ = 0;             // gradient norm of the last step that was read
  ProgressLine line_;
  StreamDiagnostics diagnostics_;
  AttentionWatch attention_watch_;
  std::int64_t first_step_ = 0;                            // of this process
  double earlier_wall_seconds_ = 0, session_seconds_ = 0;  // of earlier processes; of training, in this one
  Clock::time_point start_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<StepProfiler> profiler_;
  bool is_linked_ = false;  // runs/latest points to the run
};

}  // namespace metaformer
