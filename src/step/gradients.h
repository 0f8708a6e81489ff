#pragma once
// Computes the gradients of a step, for every implementation of it.

#include <vector>

#include "config/experiment_config.h"
#include "model/parameter_buffer.h"
#include "model/sequence_model.h"
#include "optim/optimizer.h"
#include "step/phase_timer.h"
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
};

// The batches of a step, one for each of its train.accumulate forward passes.
std::vector<Batch> training_batches(const StepParts& parts, std::int64_t step);

// Sets the gradients to those of the mean loss over all targets of the batches, which it returns: each batch's loss is
// a sum, divided by the weight of all batches. `passes`: one for each batch.
torch::Tensor accumulate_gradients(const StepParts& parts, const std::vector<Batch>& batches, const StepPasses& passes,
                                   PhaseTimer& timer);

// Scales the gradients so that their norm is at most `limit` (0: leaves them); returns the norm before. Gradients that
// are not finite stay as they are.
torch::Tensor clip_gradients(ParameterBuffer& parameters, double limit);

}  // namespace metaformer
