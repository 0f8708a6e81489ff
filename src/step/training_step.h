#pragma once
// One optimiser step: forward, backward, clipping, update. Faster implementations go behind this interface.

#include <functional>

#include "step/phase_timer.h"

namespace metaformer {

// Scalars on the device, not read yet: reading waits for the device.
struct StepResult {
  torch::Tensor loss;           // mean over the step's targets
  torch::Tensor gradient_norm;  // before clipping
  // Both undefined without a loss scale. Booleans: the gradients were not finite, so nothing was updated; and even the
  // smallest scale does not help.
  torch::Tensor skipped, exhausted;
};

// Receives the gradient norm before the update; false leaves the parameters as they are.
using AcceptNorm = std::function<bool(double)>;

class TrainingStep {
 public:
  virtual ~TrainingStep() = default;

  // Adds the time of every phase of the coming steps to `times`, waiting for the device between them; nullptr ends
  // that. A step that has no phases adds nothing.
  virtual void time_phases(StepTimes* times) = 0;

  // Batches and dropout are functions of `step`. An empty `accept` takes every update, and need not wait for the norm.
  virtual StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) = 0;
};

}  // namespace metaformer
