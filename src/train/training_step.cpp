#include "train/training_step.h"

#include <limits>
#include <numeric>

#include "base/fault.h"
#include "base/random.h"
#include "ops/autocast.h"
#include "ops/device.h"

namespace metaformer {

double StepTimes::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

EagerTrainingStep::EagerTrainingStep(const ExperimentConfig& config, const Task& task, SequenceModel& model,
                                     ParameterBuffer& parameters, AdamW& optimizer, torch::Device device)
    : config_(config), task_(task), model_(model), parameters_(parameters), optimizer_(optimizer), device_(device) {}

void EagerTrainingStep::begin_phases() {
  if (times_ == nullptr) return;
  wait_for(device_);
  phase_start_ = std::chrono::steady_clock::now();
}

void EagerTrainingStep::end(StepPhase phase) {
  if (times_ == nullptr) return;
  wait_for(device_);
  const auto now = std::chrono::steady_clock::now();
  times_->seconds[static_cast<std::size_t>(phase)] += std::chrono::duration<double>(now - phase_start_).count();
  phase_start_ = now;
}

StepResult EagerTrainingStep::run(std::int64_t step, double learning_rate, const AcceptNorm& accept) {
  begin_phases();
  auto loss = accumulate_gradients(step);
  auto norm = clip_gradients(parameters_, config_.train.clip);
  end(StepPhase::clip);
  if (!accept || accept(norm.item<double>())) optimizer_.step(learning_rate);
  end(StepPhase::update);
  return {std::move(loss), std::move(norm)};
}

torch::Tensor EagerTrainingStep::accumulate_gradients(std::int64_t step) {
  const auto batches = training_batches(task_, config_.train.accumulate, step, device_);
  end(StepPhase::batch);
  const auto weight = weight_of(batches);
  const Rng dropout(static_cast<std::uint64_t>(config_.train.seed), RandomPurpose::dropout,
                    static_cast<std::uint64_t>(step));
  parameters_.gradients().zero_();
  torch::Tensor total;
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    // The generator takes seeds of 64 bits; the top bit makes some of its interfaces throw.
    torch::manual_seed(dropout.bits(micro) >> 1);
    auto loss = batch_loss(config_.train.precision, task_, model_, batches[micro], weight, device_);
    if (fault_strikes("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
    if (fault_strikes("overflow"))  // loss and gradients, as with a scale too large for fp16
      loss = loss * std::numeric_limits<float>::max() * std::numeric_limits<float>::max();
    end(StepPhase::forward);
    loss.backward();
    end(StepPhase::backward);
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  return total;
}

std::vector<Batch> training_batches(const Task& task, std::int64_t count, std::int64_t step, torch::Device device) {
  std::vector<Batch> batches;
  for (std::int64_t micro = 0; micro < count; ++micro) batches.push_back(task.training_batch(step, micro, device));
  return batches;
}

double weight_of(const std::vector<Batch>& batches) {
  double weight = 0;
  for (const auto& batch : batches) weight += batch.weight;
  return weight;
}

torch::Tensor batch_loss(Precision precision, const Task& task, SequenceModel& model, const Batch& batch, double weight,
                         torch::Device device) {
  const AutocastScope autocast(precision, device);
  return task.loss(model, batch).sum / weight;
}

namespace {

// Tensor by tensor, as torch.nn.utils.clip_grad_norm_: one sum over all of the buffer would lose the last three digits.
torch::Tensor norm_of_gradients(const ParameterBuffer& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const auto& view : parameters.views()) gradients.push_back(view.parameter.grad());
  return torch::stack(at::_foreach_norm(gradients)).norm();
}

}  // namespace

torch::Tensor clip_gradients(ParameterBuffer& parameters, double limit) {
  const torch::NoGradGuard no_grad;
  auto& gradients = parameters.gradients();
  const auto norm = norm_of_gradients(parameters);
  if (limit > 0) {
    constexpr double epsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_
    const auto factor = (limit / (norm + epsilon)).clamp_max(1);
    gradients.mul_(torch::where(norm.isfinite(), factor, 1.0));  // NaN stays where it came from, to be named
  }
  return norm;
}

}  // namespace metaformer
