#pragma once
// Computes the gradients of a step, for every implementation of it.

#include <vector>

#include "config/experiment_config.h"
#include "model/parameter_buffer.h"
#include "model/sequence_model.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "step/training_step.h"
#include "tasks/task.h"

namespace metaformer {

// The objects that a step works on; all of them must outlive it.
struct StepParts {
  const ExperimentConfig& config;
  const Task& task;
  SequenceModel& model;
  ParameterBuffer& parameters;
  Optimizer& optimizer;
  torch::Device device;
  LossScale* loss_scale = nullptr;  // whose gradients the optimiser takes; none: those of the loss itself
};

// The batches of a step, one for each of its train.accumulate forward passes.
std::vector<Batch> training_batches(const StepParts& parts, std::int64_t step);

// Sets the gradients to those of the mean loss over all targets of the batches, which it returns: each batch's loss is
// a sum, divided by the weight of all batches. With a loss scale the gradients are multiplied by it, the loss that is
// returned is not. `passes`: one for each batch.
torch::Tensor accumulate_gradients(const StepParts& parts, const std::vector<Batch>& batches, const StepPasses& passes,
                                   PhaseTimer& timer);

// Scales the gradients so that their norm, without the loss scale, is at most train.clip (0: leaves them); returns that
// norm before. Gradients that are not finite stay as they are.
torch::Tensor clip_gradients(const StepParts& parts);

// After the update: what the step returns. Adapts the loss scale.
StepResult finish_step(const StepParts& parts, torch::Tensor loss, torch::Tensor gradient_norm);

}  // namespace metaformer
