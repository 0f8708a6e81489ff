#pragma once
// Gradients of a batch that is cut into slices of rows. Threads work on slices side by side, each with operators of one
// thread: what they compute for small operators is worth more than what dividing each operator gains.

#include <span>

#include "step/batch_loss.h"
#include "step/phase_timer.h"

namespace metaformer {

// Adds the gradients of the batch's part of a step's loss to those of parts.parameters, or where `first` is 0 puts them
// there, whatever was there before; returns that part of the loss, summed in float32. `passes`: one for each slice,
// of which `first` is the number of the first among the passes of the step; there are no more slices than rows. The
// result does not depend on the number of threads: the gradients of the slices are added in their order. Until then all
// of them are kept.
torch::Tensor add_gradients_of_slices(const StepParts& parts, const Batch& batch, const torch::Tensor& weight,
                                      std::span<const Pass> passes, std::int64_t first, PhaseTimer& timer);

}  // namespace metaformer
