#include "step/gradients.h"

#include <limits>

#include "base/fault.h"
#include "ops/autocast.h"

namespace metaformer {

std::vector<Batch> training_batches(const StepParts& parts, std::int64_t step) {
  std::vector<Batch> batches;
  for (std::int64_t micro = 0; micro < parts.config.train.accumulate; ++micro)
    batches.push_back(parts.task.batches->training_batch(step, micro, parts.device));
  return batches;
}

namespace {

torch::Tensor weight_of(const std::vector<Batch>& batches) {
  auto weight = batches.front().weight;
  for (std::size_t i = 1; i < batches.size(); ++i) weight = weight + batches[i].weight;
  return weight;
}

// The batch's part of the mean loss of a step with that weight.
torch::Tensor batch_loss(const StepParts& parts, const Batch& batch, const torch::Tensor& weight, Pass pass) {
  const AutocastScope autocast(parts.config.train.precision, parts.device);
  const auto sum = parts.task.objective->loss(parts.model.forward(batch, nullptr, pass), batch);
  return sum / weight.to(sum.scalar_type());
}

torch::Tensor with_faults(torch::Tensor loss) {
  if (fault_strikes("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
  if (fault_strikes("overflow"))  // loss and gradients, as with a scale too large for fp16
    loss = loss * std::numeric_limits<float>::max() * std::numeric_limits<float>::max();
  return loss;
}

}  // namespace

torch::Tensor accumulate_gradients(const StepParts& parts, const std::vector<Batch>& batches, const StepPasses& passes,
                                   PhaseTimer& timer) {
  const auto weight = weight_of(batches);
  parts.parameters.gradients().zero_();
  torch::Tensor total;
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    const auto pass = passes.pass(static_cast<std::int64_t>(micro));
    const auto loss = with_faults(batch_loss(parts, batches[micro], weight, pass));
    timer.end(StepPhase::forward);
    (parts.loss_scale == nullptr ? loss : loss * parts.loss_scale->factor()).backward();
    timer.end(StepPhase::backward);
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  return total;
}

namespace {

// Tensor by tensor, as torch.nn.utils.clip_grad_norm_: one sum over all of the buffer would lose the last three digits.
torch::Tensor norm_of_gradients(const ParameterBuffer& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const auto& view : parameters.views()) gradients.push_back(view.parameter.grad());
  return torch::stack(at::_foreach_norm(gradients)).norm();
}

}  // namespace

torch::Tensor clip_gradients(const StepParts& parts) {
  const torch::NoGradGuard no_grad;
  const double limit = parts.config.train.clip;
  auto& gradients = parts.parameters.gradients();
  auto norm = norm_of_gradients(parts.parameters);
  if (parts.loss_scale != nullptr) norm = parts.loss_scale->unscaled_norm(norm);
  if (limit > 0) {
    constexpr double epsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_
    const auto factor = (limit / (norm + epsilon)).clamp_max(1);
    gradients.mul_(torch::where(norm.isfinite(), factor, 1.0));  // NaN stays where it came from, to be named
  }
  return norm;
}

StepResult finish_step(const StepParts& parts, torch::Tensor loss, torch::Tensor gradient_norm) {
  StepResult result{.loss = std::move(loss), .gradient_norm = std::move(gradient_norm), .skipped = {}, .exhausted = {}};
  if (parts.loss_scale == nullptr) return result;
  const torch::NoGradGuard no_grad;
  result.skipped = parts.loss_scale->is_skipped();
  result.exhausted = parts.loss_scale->is_exhausted();
  parts.loss_scale->adapt();
  return result;
}

}  // namespace metaformer
