#pragma once
// Computes the gradients of a step, for every implementation of it.

#include <vector>

#include "step/batch_loss.h"
#include "step/training_step.h"

namespace metaformer {

// The batches of a step that this process computes, one for each of its forward passes. Where a micro-batch is divided,
// the weight of all of it stands in its first part, and 0 in the others.
std::vector<Batch> training_batches(const StepParts& parts, std::int64_t step);

// Parts that the step cuts each batch into, where it has as many rows: train.cpu_slices on the CPU.
std::int64_t slices_of_batch(const StepParts& parts);

// Batches of a step that this process computes.
std::int64_t batches_of_step(const StepParts& parts);

// Whether backward computes parts of a step again, which then add to the gradients by themselves.
bool computes_again(const ExperimentConfig& config);

// Sets the gradients to those of the mean loss over all targets of the batches, which it returns: each batch's loss is
// a sum, divided by the weight of all batches. With a loss scale the gradients are multiplied by it, the loss that is
// returned is not. With more slices than one, the result does not depend on
// the number of threads: each slice is computed by one thread, and their gradients are added in a fixed order.
torch::Tensor accumulate_gradients(const StepParts& parts, const std::vector<Batch>& batches, const StepPasses& passes,
                                   PhaseTimer& timer);

// Scales the gradients so that their norm, without the loss scale, is at most train.clip (0: leaves them); returns that
// norm before. Gradients that are not finite stay as they are.
torch::Tensor clip_gradients(const StepParts& parts);

// After the update: what the step returns. Adapts the loss scale.
StepResult finish_step(const StepParts& parts, torch::Tensor loss, torch::Tensor gradient_norm);

}  // namespace metaformer
