#pragma once
// The training loop: steps, evaluations, checkpoints, logs. Knows tasks and steps, not models.

#include "base/error.h"
#include "config/loader.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "train/progress_line.h"
#include "train/step_profiler.h"
#include "train/training_step.h"

namespace metaformer {

// The last step is done, or train.patience ended training early.
bool is_finished(const TrainConfig& config, const Progress& progress);

class Trainer {
 public:
  // Builds model and optimiser; the run directory must exist. With a checkpoint, training goes on from it.
  Trainer(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device,
          const std::optional<Checkpoint>& checkpoint);

  // Records a few of the coming steps and reports time by operator.
  void profile();

  // Trains to the last step and returns what summary.json is to hold. Throws Error (exit code 4) when the loss is not
  // finite, Interrupted after saving when a stop signal arrives.
  nlohmann::ordered_json run();

 private:
  void advance();  // one step and what is due after it
  void train_step();
  void count_time(std::chrono::steady_clock::time_point start);  // since then this process has trained
  StepResult run_step();
  void diagnose(const torch::Tensor& before);  // the last step; `before`: the parameters before it
  void read_losses();               // takes the pending losses from the device; throws when they are not finite
  double seconds_per_step() const;  // of training, in this process; 0 while unknown
  double wall_seconds() const;      // of all processes that trained the run
  std::int64_t tokens_seen() const;
  double epochs_seen() const;
  torch::Tensor is_clipped(const torch::Tensor& gradient_norm) const;  // 1 or 0
  void write_training_line();
  void write_sample();             // as far as due
  bool lacks_evaluation() const;   // that is due at this step
  bool is_checkpoint_due() const;  // at this step, once its evaluation is done
  LogPosition log_position() const;
  void recalibrate();  // what evaluations and checkpoints take from the training data, a function of the weights
  void evaluate();
  nlohmann::ordered_json estimate();        // on random batches
  nlohmann::ordered_json evaluate_whole();  // on the validation split
  void evaluate_and_save();                 // as far as due after a step; saves before it lets a stop signal through
  void make_up_evaluation();                // that the stop of an earlier process cut short
  void save();
  std::string describe_divergence(const std::string& what) const;
  bool roll_back(const Error& error);  // false when the error is not to be mended
  void restore(const std::optional<Checkpoint>& checkpoint);
  AcceptNorm spike_watch();
  bool is_at(std::int64_t interval) const;
  nlohmann::ordered_json test();
  nlohmann::ordered_json summary();

  const ExperimentConfig& config_;
  const RunDirectory& run_;
  const Task& task_;
  torch::Device device_;
  std::shared_ptr<SequenceModel> model_;
  std::unique_ptr<ParameterBuffer> parameters_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<TrainingStep> step_;
  Progress progress_;
  std::int64_t first_step_ = 0;
  std::int64_t recalibrated_step_ = -1;  // for which the model's weights are now recalibrated
  torch::Tensor initial_values_;         // of the parameters, where a rollback may need them
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<StepProfiler> profiler_;
  ProgressLine line_;

  torch::Tensor pending_loss_, pending_clipped_, last_norm_;  // on the device
  std::int64_t pending_count_ = 0;
  double learning_rate_ = 0;
  double session_seconds_ = 0;  // of training only, in this process, without its first step
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double earlier_wall_seconds_ = 0;  // of earlier processes
};

}  // namespace metaformer
