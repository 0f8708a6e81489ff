#pragma once
// How much memory a training will take, from its config: good enough to refuse a run before hours are lost, not exact
// to the byte.

#include <cstdint>

#include "model/make_model.h"

namespace metaformer {

struct MemoryEstimate {
  std::int64_t vocabulary = 0;                                               // assumed unless the data are known
  std::int64_t parameters = 0;                                               // number of them
  std::uint64_t weights = 0, gradients = 0, optimizer = 0, activations = 0;  // bytes
  std::uint64_t program = 0;                                                 // LibTorch and what is small
  std::uint64_t state() const { return weights + gradients + optimizer; }
  std::uint64_t total() const;
};

// Parameters are counted; activations are the most of what the backward pass of composed mixers keeps, of what an
// evaluation holds and of what a checkpoint copies. On the CPU, with as many threads as LibTorch has now, without the
// texts themselves. Sizes that are 0 are not known yet, so that a usual number is assumed.
MemoryEstimate estimate_memory(const ExperimentConfig& config, const ModelSizes& data = {});

// Whether state and activations exceed this many bytes by more than the error of the estimate.
bool clearly_exceeds(const MemoryEstimate& estimate, std::uint64_t bytes);

// The memory of this machine, or less where the control group or a limit on address space (ulimit -v) allows less.
std::uint64_t machine_memory();

}  // namespace metaformer
