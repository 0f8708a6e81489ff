#pragma once
// Dynamic loss scaling (Micikevicius et al. 2018): keeps small gradients within fp16's range.

#include "optim/optimizer.h"

namespace metaformer {

// The loss is multiplied by the scale, and gradients are divided by it. A step whose gradients are not finite changes
// nothing but the scale. All of it stays on the device, so that a graph can hold it. As torch.amp.GradScaler, but the
// scale does not fall below 1, where fp16 gains nothing from it.
class LossScale {
 public:
  explicit LossScale(torch::Device device);

  const torch::Tensor& factor() const { return factor_; }
  GradientScale of_gradients() const { return {.divisor = factor_, .found_inf = found_inf_}; }

  // Takes the norm of the scaled gradients; returns that of the gradients.
  torch::Tensor unscaled_norm(const torch::Tensor& scaled_norm);

  // Of the step whose norm came last, scalars: whether it is to be skipped; whether even the smallest scale was too
  // large.
  torch::Tensor is_skipped() const { return found_inf_.to(torch::kBool, /*non_blocking=*/false, /*copy=*/true); }
  torch::Tensor is_exhausted() const { return is_skipped().logical_and_(factor_ <= smallest); }

  // After the update: twice as large after 2,000 steps without an overflow, half as large after one.
  void adapt();

  void reset();
  NamedTensors state() const;  // as Optimizer::state

 private:
  static constexpr double initial = 65536, smallest = 1;

  torch::Tensor factor_, found_inf_;  // float scalars
  torch::Tensor good_steps_;          // int32 scalar: since the last change of the scale
};

}  // namespace metaformer
