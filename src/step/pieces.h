#pragma once
// Which rows of a step each process computes.

#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

// One of equal parts of a micro-batch's rows.
struct Piece {
  std::int64_t micro = 0, part = 0, parts = 1;
};

// Consecutive rows of the step for each of `size` processes: whole micro-batches as far as they can be divided, so that
// as many processes as micro-batches compute what one process does.
std::vector<Piece> pieces_of(int rank, int size, std::int64_t accumulate);

// Errors (exit code 2): the step's rows, or its batches of tokens, cannot be divided evenly.
void require_equal_pieces(const ExperimentConfig& config, int size);

}  // namespace metaformer
