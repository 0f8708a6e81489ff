#pragma once
// Losses and gradient norms of steps, on the device until somebody needs them: reading waits for the device.

#include <utility>

#include "step/training_step.h"

namespace metaformer {

class PendingLosses {
 public:
  // Of all steps since the last reading.
  struct Sums {
    double loss = 0;
    std::int64_t steps = 0, clipped_steps = 0;
  };

  // `clip`: the largest gradient norm; 0: none.
  void add(const StepResult& result, double clip) {
    const auto loss = result.loss.to(torch::kDouble);
    const auto& norm = result.gradient_norm;
    const auto clipped = (clip > 0 ? norm > clip : torch::zeros_like(norm)).to(torch::kLong);
    loss_ = steps_ == 0 ? loss : loss_ + loss;
    clipped_ = steps_ == 0 ? clipped : clipped_ + clipped;
    last_norm_ = norm;
    ++steps_;
  }

  bool empty() const { return steps_ == 0; }
  void clear() { steps_ = 0; }
  Sums take() { return {loss_.item<double>(), std::exchange(steps_, 0), clipped_.item<std::int64_t>()}; }

  // The gradient norm of the last step.
  double last_norm() const { return last_norm_.item<double>(); }

 private:
  torch::Tensor loss_, clipped_, last_norm_;
  std::int64_t steps_ = 0;
};

}  // namespace metaformer
