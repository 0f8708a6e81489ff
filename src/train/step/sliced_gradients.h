#pragma once
// Gradients of a batch cut into slices.

#include <vector>

#include "config/experiment_config.h"
#include "train/step/batch_loss.h"

namespace metaformer {

// Which rows of a step each process computes.

// One of equal parts of a micro-batch's rows.
struct Piece {
  std::int64_t micro = 0, part = 0, parts = 1;
};

// Consecutive rows of the step for each of `size` processes: whole micro-batches as far as they can be divided, so that
// as many processes as micro-batches compute what one process does.
std::vector<Piece> pieces_of(int rank, int size, std::int64_t accumulate);

// Errors (exit code 2): the step's rows, or its batches of tokens, cannot be divided evenly.
void require_equal_pieces(const ExperimentConfig& config, int size);

// Gradients of a batch that is cut into slices of rows. Threads work on slices side by side, each with operators of one
// thread: what they compute for small operators is worth more than what dividing each operator gains.
struct Slices {
  const StepPasses& passes;
  std::int64_t count;         // as far as the batch has rows
  std::int64_t first_number;  // of the first slice's pass, among those of the step
};

// Adds the gradients of the batch's part of a step's loss to those of parts.parameters, or for the first pass of the
// step puts them there, whatever was there before; returns that part of the loss, summed in float32. The result does
// not depend on the number of threads: the gradients of the slices are added in their order. Until then all of them are
// kept.
torch::Tensor add_gradients_of_slices(const StepParts& parts, const Batch& batch, const torch::Tensor& weight,
                                      const Slices& slices, PhaseTimer& timer);

}  // namespace metaformer
