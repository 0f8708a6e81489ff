#pragma once
// The training loop.

#include "base/error.h"
#include "config/loader.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "run/run_summary.h"
#include "tasks/task.h"
#include "train/diagnostics.h"
#include "train/evaluator.h"
#include "train/initial_weights.h"
#include "train/optim/optimizer.h"
#include "train/optim/schedule.h"
#include "train/step/batch_loss.h"
#include "train/step/training_step.h"
#include "train/step_profiler.h"
#include "train/training_log.h"

namespace metaformer {

// A model in training with all that a step needs. Runs and benchmarks share it.
struct TrainingSetup {
  // With random weights, or those of train.init_from where they are given. `config`, `task` and `group`, which shares
  // the steps evenly (require_equal_pieces), must outlive it.
  TrainingSetup(const ExperimentConfig& config, const Task& task, torch::Device device,
                const InitialWeights* initial = nullptr, ProcessGroup& group = one_process());
  TrainingSetup(const TrainingSetup&) = delete;
  TrainingSetup& operator=(const TrainingSetup&) = delete;

  // What a checkpoint keeps beside the model, while the average is in use: of the optimiser, the loss scale and the
  // weights in training where they are averaged, and what the model remembers. Aliases it. To be called by all
  // processes.
  NamedTensors state() const;

  // Goes on from a checkpoint. Errors: as copy_by_name.
  void restore(const Checkpoint& checkpoint);

  // Back to the state before the first step, with these values of the parameter buffer.
  void restart(const torch::Tensor& values);

  std::shared_ptr<SequenceModel> model;
  std::optional<TakenWeights> taken;  // given initial weights
  std::unique_ptr<ParameterBuffer> parameters;
  std::unique_ptr<LossScale> loss_scale;  // of fp16 only
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightAverage> average;
  std::unique_ptr<const Schedule> schedule;
  std::unique_ptr<StepMemory> memory;
  std::unique_ptr<GradientSum> gradient_sum;  // of several processes
  std::unique_ptr<TrainingStep> step;

 private:
  std::int64_t rows_;  // of a step, of all processes
};

// Saves a training as checkpoints.
class Saver {
 public:
  // Keeps references.
  Saver(const RunDirectory& run, const Task& task, TrainingSetup& setup, Evaluator& evaluator,
        const Divergence& divergence, std::int64_t keep, ProcessGroup& group)
      : run_(run),
        task_(task),
        setup_(setup),
        evaluator_(evaluator),
        divergence_(divergence),
        keep_(keep),
        group_(group) {}

  // Saves the state at the step of `progress`, after the lines of `metrics` before it. To be called by all processes,
  // of which the first writes; the first checkpoint makes the run runs/latest. Errors: as save_checkpoint; exit code 4,
  // and nothing is saved, when weights or optimiser state are not finite; exit code 6, when the processes' weights
  // differ.
  void save(const Progress& progress, const MetricsLog& metrics);

 private:
  void require_finite() const;
  void require_same_weights() const;

  const RunDirectory& run_;
  const Task& task_;
  TrainingSetup& setup_;
  Evaluator& evaluator_;
  const Divergence& divergence_;
  std::int64_t keep_;
  ProcessGroup& group_;
  bool is_linked_ = false;  // runs/latest leads to the run
};

// train.divergence.action: rollback. A run that diverged goes on from an earlier checkpoint, with other batches and a
// lower learning rate.

// What the rollbacks so far multiply the learning rate by.
double rollback_factor(const TrainConfig& config, const Progress& progress);

// The step whose batches are trained on next: after a rollback those of steps that no run reaches.
std::int64_t batch_step(const Progress& progress);

class Rollback {
 public:
  // Keeps references. `setup` has its initial weights, which a rollback may need.
  Rollback(const TrainConfig& config, const RunDirectory& run, const Metrics& metrics, TrainingSetup& setup);

  // Restores `setup` and `progress` to the state to go on from; false when the error is no divergence, or the config
  // allows no rollback or none any more.
  bool recover(const Error& error, Progress& progress);

 private:
  Progress restore(const std::optional<Checkpoint>& checkpoint);

  const TrainConfig& config_;
  const RunDirectory& run_;
  const Metrics& metrics_;
  TrainingSetup& setup_;
  torch::Tensor initial_values_;
};

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
