#pragma once
// A step through LibTorch's autograd.

#include "step/batch_loss.h"
#include "step/training_step.h"

namespace metaformer {

// Accumulated batches give the gradient of their union.
class EagerTrainingStep : public TrainingStep {
 public:
  explicit EagerTrainingStep(const StepParts& parts)
      : parts_(parts), passes_(static_cast<std::uint64_t>(parts.config.train.seed), parts.device) {}
  StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) override;
  void time_phases(StepTimes* times) override { times_ = times; }

 private:
  StepParts parts_;
  StepPasses passes_;
  StepTimes* times_ = nullptr;
};

}  // namespace metaformer
