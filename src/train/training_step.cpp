#include "train/training_step.h"

#include <limits>
#include <numeric>

#include "core/fault.h"
#include "core/random.h"
#include "train/autocast.h"
#include "train/device.h"

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
  auto norm = clip_gradients();
  end(StepPhase::clip);
  if (!accept || accept(norm.item<double>())) optimizer_.step(learning_rate);
  end(StepPhase::update);
  return {std::move(loss), std::move(norm)};
}

torch::Tensor EagerTrainingStep::accumulate_gradients(std::int64_t step) {
  const auto count = config_.train.accumulate;
  std::vector<Batch> batches;
  double weight = 0;
  for (std::int64_t micro = 0; micro < count; ++micro) {
    batches.push_back(task_.training_batch(step, micro, device_));
    weight += batches.back().weight;
  }
  end(StepPhase::batch);
  const Rng dropout(static_cast<std::uint64_t>(config_.train.seed), RandomPurpose::dropout,
                    static_cast<std::uint64_t>(step));
  parameters_.gradients().zero_();
  torch::Tensor total;
  for (std::int64_t micro = 0; micro < count; ++micro) {
    // The generator takes seeds of 64 bits; the top bit makes some of its interfaces throw.
    if (config_.model.dropout > 0) torch::manual_seed(dropout.bits(static_cast<std::uint64_t>(micro)) >> 1);
    torch::Tensor loss;
    {
      const AutocastScope autocast(config_.train.precision, device_);
      loss = task_.loss(model_, batches[static_cast<std::size_t>(micro)]).sum / weight;
    }
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

torch::Tensor EagerTrainingStep::clip_gradients() {
  const torch::NoGradGuard no_grad;
  auto& gradients = parameters_.gradients();
  const auto norm = gradients.norm();
  if (config_.train.clip > 0) {
    constexpr double epsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_
    const auto factor = (config_.train.clip / (norm + epsilon)).clamp_max(1);
    gradients.mul_(torch::where(norm.isfinite(), factor, 1.0));  // NaN stays where it came from, to be named
  }
  return norm;
}

std::unique_ptr<TrainingStep> make_training_step(const ExperimentConfig& config, const Task& task, SequenceModel& model,
                                                 ParameterBuffer& parameters, AdamW& optimizer, torch::Device device) {
  return std::make_unique<EagerTrainingStep>(config, task, model, parameters, optimizer, device);
}

}  // namespace metaformer
