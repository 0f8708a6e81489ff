#pragma once
// A model in training with all that a step needs. Runs and benchmarks share it.

#include "optim/make_optimizer.h"
#include "optim/make_schedule.h"
#include "run/checkpoint.h"
#include "step/make_training_step.h"

namespace metaformer {

struct TrainingSetup {
  // With initial weights. `config` and `task` must outlive it.
  TrainingSetup(const ExperimentConfig& config, const Task& task, torch::Device device);
  TrainingSetup(const TrainingSetup&) = delete;
  TrainingSetup& operator=(const TrainingSetup&) = delete;

  // Weights and optimiser state of a checkpoint. Errors: as copy_by_name.
  void restore(const Checkpoint& checkpoint);

  std::shared_ptr<SequenceModel> model;
  std::unique_ptr<ParameterBuffer> parameters;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<const Schedule> schedule;
  std::unique_ptr<TrainingStep> step;
};

}  // namespace metaformer
