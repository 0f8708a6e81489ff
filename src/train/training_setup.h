#pragma once
// A model in training with all that a step needs. Runs and benchmarks share it.

#include "optim/schedule.h"
#include "optim/weight_average.h"
#include "run/checkpoint.h"
#include "step/batch_loss.h"
#include "step/training_step.h"
#include "train/initial_weights.h"

namespace metaformer {

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

}  // namespace metaformer
