#pragma once
// An estimate of the memory of a run, from its config: good enough to refuse a run before hours are lost, not exact to
// the byte.

#include <cstdint>

#include "model/make_model.h"

namespace metaformer {

struct MemoryEstimate {
  std::int64_t vocabulary = 0;                                               // assumed unless the data are known
  std::int64_t parameters = 0;                                               // number of them
  std::uint64_t weights = 0, gradients = 0, optimizer = 0, activations = 0;  // bytes
  std::uint64_t program = 0;                                                 // LibTorch and small allocations
  std::uint64_t state() const { return weights + gradients + optimizer; }
  std::uint64_t total() const;
};

// Parameters are counted; with products in half precision the weights include their copy (ops/autocast.h). Activations
// are the maximum of the numbers that backward passes of composed mixers keep, that an evaluation holds, and that a
// checkpoint copies. The estimate is for the CPU with LibTorch's current number of threads, without the texts
// themselves. A size of 0 is not known yet; a usual number is then assumed.
MemoryEstimate estimate_memory(const ExperimentConfig& config, const ModelSizes& data = {});

// Whether state and activations exceed this many bytes by more than the error of the estimate.
bool clearly_exceeds(const MemoryEstimate& estimate, std::uint64_t bytes);

// The memory of this machine, or less where the control group or a limit on address space (ulimit -v) allows less.
std::uint64_t machine_memory();

}  // namespace metaformer
