#include "step/gradients.h"

#include "ops/parallel.h"
#include "step/sliced_gradients.h"

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

torch::Tensor add_gradients_of_batch(const StepParts& parts, const Batch& batch, const torch::Tensor& weight,
                                     const Pass& pass, std::int64_t number, PhaseTimer& timer) {
  const auto loss = with_faults(batch_loss(parts, batch, weight, pass, number));
  timer.end(StepPhase::forward);
  scaled(parts, loss).backward();
  timer.end(StepPhase::backward);
  return loss.detach();
}

}  // namespace

std::int64_t slices_of_batch(const StepParts& parts) {
  return parts.device.is_cpu() ? parts.config.train.cpu_slices : 1;
}

std::int64_t passes_of_step(const StepParts& parts) { return parts.config.train.accumulate * slices_of_batch(parts); }

torch::Tensor accumulate_gradients(const StepParts& parts, const std::vector<Batch>& batches, const StepPasses& passes,
                                   PhaseTimer& timer) {
  const auto weight = weight_of(batches);
  const auto count = slices_of_batch(parts);
  if (count == 1) parts.parameters.clear_gradients();
  torch::Tensor total;
  for (std::int64_t micro = 0; micro < std::ssize(batches); ++micro) {
    const auto& batch = batches[static_cast<std::size_t>(micro)];
    const auto loss = count == 1
                          ? add_gradients_of_batch(parts, batch, weight, passes.pass(micro), micro, timer)
                          : add_gradients_of_slices(parts, batch, weight, passes.consecutive(micro * count, count),
                                                    micro * count, timer);
    total = total.defined() ? total + loss : loss;
  }
  return total;
}

namespace {

torch::Tensor norm_of_gradient(const ParameterBuffer::View& view) {
  const auto& gradient = view.parameter.grad();
  if (!view.has_listed_rows()) return gradient.norm();
  const auto rows = torch::tensor(view.gradient_rows->listed(), torch::kLong);
  return gradient.view({-1, view.row_width()}).index_select(0, rows).norm();
}

// Tensor by tensor, as torch.nn.utils.clip_grad_norm_: one sum over all of the buffer would lose the last three digits.
// On the CPU each by one thread, so that the norm does not depend on the number of threads.
torch::Tensor norm_of_gradients(const ParameterBuffer& parameters) {
  const auto& views = parameters.views();
  if (!parameters.values().is_cpu()) {
    std::vector<torch::Tensor> gradients;
    for (const auto& view : views) gradients.push_back(view.parameter.grad());
    return torch::stack(at::_foreach_norm(gradients)).norm();
  }
  auto norms_p = torch::empty({std::ssize(views)}, parameters.values().options());
  at::parallel_for(0, std::ssize(views), 1, [&](std::int64_t begin, std::int64_t end) {
    const torch::NoGradGuard no_grad;
    for (auto i = begin; i < end; ++i) norms_p.select(0, i).copy_(norm_of_gradient(views[static_cast<std::size_t>(i)]));
  });
  return norms_p.norm();
}

}  // namespace

torch::Tensor clip_gradients(const StepParts& parts) {
  const torch::NoGradGuard no_grad;
  const double limit = parts.config.train.clip;
  auto norm = norm_of_gradients(parts.parameters);
  if (parts.loss_scale != nullptr) norm = parts.loss_scale->unscaled_norm(norm);
  if (limit > 0) {
    constexpr double epsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_
    const auto factor = (limit / (norm + epsilon)).clamp_max(1);
    const auto used = torch::where(norm.isfinite(), factor, 1.0);  // NaN stays where it came from, to be named
    if (norm.is_cuda() || used.item<double>() != 1) parts.parameters.scale_gradients(used);  // a GPU is not waited for
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
