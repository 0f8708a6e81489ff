#pragma once
// Losses and gradient norms of steps, on the device until somebody needs them: reading waits for the device.

#include <utility>

#include "step/training_step.h"

namespace metaformer {

class PendingLosses {
 public:
  // Of all steps since the last reading.
  struct Sums {
    double loss = 0;                                               // without the steps that were skipped
    std::int64_t steps = 0, clipped_steps = 0, skipped_steps = 0;  // `steps`: skipped ones among them
    bool exhausted = false;                                        // one was skipped with the smallest loss scale
  };

  // `clip`: the largest gradient norm; 0: none.
  void add(const StepResult& result, double clip) {
    auto loss = result.loss.to(torch::kDouble);
    const auto& norm = result.gradient_norm;
    auto clipped = (clip > 0 ? norm > clip : torch::zeros_like(norm)).to(torch::kLong);
    if (result.skipped.defined()) {
      loss = torch::where(result.skipped, 0, loss);
      clipped = torch::where(result.skipped, 0, clipped);
      const auto skipped = torch::stack({result.skipped, result.exhausted}).to(torch::kLong);
      skipped_2_ = steps_ == 0 ? skipped : skipped_2_ + skipped;
    }
    loss_ = steps_ == 0 ? loss : loss_ + loss;
    clipped_ = steps_ == 0 ? clipped : clipped_ + clipped;
    last_ = result;
    ++steps_;
  }

  bool empty() const { return steps_ == 0; }
  void clear() { steps_ = 0; }
  Sums take() {
    Sums sums{.loss = loss_.item<double>(),
              .steps = std::exchange(steps_, 0),
              .clipped_steps = clipped_.item<std::int64_t>()};
    if (!skipped_2_.defined()) return sums;
    sums.skipped_steps = skipped_2_[0].item<std::int64_t>();
    sums.exhausted = skipped_2_[1].item<std::int64_t>() > 0;
    return sums;
  }

  // Of the last step.
  double last_norm() const { return last_.gradient_norm.item<double>(); }
  bool last_was_skipped() const { return last_.skipped.defined() && last_.skipped.item<bool>(); }

 private:
  torch::Tensor loss_, clipped_;
  torch::Tensor skipped_2_;  // steps that were skipped, and those of them with the smallest scale
  StepResult last_;
  std::int64_t steps_ = 0;
};

}  // namespace metaformer
