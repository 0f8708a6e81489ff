#pragma once
// The loss of one batch of a step.

#include "config/experiment_config.h"
#include "distributed/process_group.h"
#include "model/parameter_buffer.h"
#include "model/sequence_model.h"
#include "ops/autocast.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "step/gradient_sum.h"
#include "step/step_memory.h"
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
  LossScale* loss_scale = nullptr;       // whose gradients the optimiser takes; none: those of the loss itself
  const StepMemory* memory = nullptr;    // of a model with memory; none: nothing is remembered
  ProcessGroup* group = &one_process();  // that shares the step
  GradientSum* gradient_sum = nullptr;   // of several processes
  const std::vector<Shard>* shards =
      nullptr;  // of every rank, whose gradients only that rank needs; none: all need all
};

// The batch's part of the mean loss of a step, whose batches weigh `weight` in all. `number` of the pass among those of
// the step.
torch::Tensor batch_loss(const StepParts& parts, const Batch& batch, const torch::Tensor& weight, Pass pass,
                         std::int64_t number, AutocastCasts casts = AutocastCasts::drop);

// What the gradients are taken of: with a loss scale the loss times that.
torch::Tensor scaled(const StepParts& parts, const torch::Tensor& loss);

// For tests: NaN or infinite where the faults "nan" and "overflow" strike.
torch::Tensor with_faults(torch::Tensor loss);

}  // namespace metaformer
