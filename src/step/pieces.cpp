#include "step/pieces.h"

#include <fmt/format.h>

#include <numeric>

#include "base/error.h"

namespace metaformer {

static std::int64_t parts_of_batch(int size, std::int64_t accumulate) {
  return size / std::gcd(std::int64_t{size}, accumulate);
}

std::vector<Piece> pieces_of(int rank, int size, std::int64_t accumulate) {
  const auto parts = parts_of_batch(size, accumulate), of_process = accumulate * parts / size;
  std::vector<Piece> pieces;
  for (auto i = rank * of_process; i < (rank + 1) * of_process; ++i)
    pieces.push_back({.micro = i / parts, .part = i % parts, .parts = parts});
  return pieces;
}

void require_equal_pieces(const ExperimentConfig& experiment, int size) {
  const auto& config = experiment.train;
  const auto parts = parts_of_batch(size, config.accumulate);
  if (batches_by_tokens(experiment.task) && parts > 1)
    throw Error(ExitCode::usage,
                fmt::format("train.accumulate {} cannot be divided over {} processes: with task.batch_unit token every "
                            "process takes whole batches, so train.accumulate must be a multiple of {}",
                            config.accumulate, size, size));
  if (config.batch_size % parts == 0) return;
  throw Error(ExitCode::usage,
              fmt::format("the rows of a step, train.batch_size {} x train.accumulate {}, cannot be divided over {} "
                          "processes: train.batch_size must be a multiple of {}",
                          config.batch_size, config.accumulate, size, parts));
}

}  // namespace metaformer
