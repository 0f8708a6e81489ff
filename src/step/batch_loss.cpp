#include "step/batch_loss.h"

#include <limits>

#include "base/fault.h"

namespace metaformer {

torch::Tensor batch_loss(const StepParts& parts, const Batch& batch, const torch::Tensor& weight, Pass pass,
                         std::int64_t number, AutocastCasts casts) {
  const AutocastScope autocast(parts.config.train.precision, parts.device, casts);
  auto* memory = parts.memory != nullptr ? parts.memory->of_pass(number) : nullptr;
  const auto sum = parts.task.objective->loss(parts.model.forward(batch, memory, pass), batch);
  return sum / weight.to(sum.scalar_type());
}

torch::Tensor with_faults(torch::Tensor loss) {
  if (fault_strikes("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
  if (fault_strikes("overflow"))  // loss and gradients, as with a scale too large for fp16
    loss = loss * std::numeric_limits<float>::max() * std::numeric_limits<float>::max();
  return loss;
}

torch::Tensor scaled(const StepParts& parts, const torch::Tensor& loss) {
  return parts.loss_scale == nullptr ? loss : loss * parts.loss_scale->factor();
}

}  // namespace metaformer
