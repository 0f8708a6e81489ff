#include "train/optim/adam.h"

namespace metaformer {

Adam::Adam(ParameterBuffer& parameters, std::vector<DecayRange> ranges, const MomentsConfig& config, Decaying decaying,
           GradientScale scale)
    : parameters_(parameters),
      ranges_(std::move(ranges)),
      config_(config),
      decaying_(decaying),
      scale_(std::move(scale)),
      steps_(torch::zeros({}, parameters.values().options().dtype(torch::kFloat))) {
  for (const auto& range : ranges_) {
    first_moments_.push_back(torch::zeros({range.count}, parameters.values().options()));
    second_moments_.push_back(torch::zeros_like(first_moments_.back()));
  }
}

template <class Rate>
void Adam::update(const Rate& learning_rate) {
  const torch::NoGradGuard no_grad;
  steps_.add_(1);
  if (scale_.found_inf.defined()) steps_.sub_(scale_.found_inf);
  const auto scale = as_optional(scale_.divisor), found_inf = as_optional(scale_.found_inf);
  const std::vector<torch::Tensor> largest;  // of AMSGrad only
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const auto& range = ranges_[i];
    const auto part = [&](const torch::Tensor& buffer) {
      return std::vector{buffer.narrow(0, range.first, range.count)};
    };
    const auto values = part(parameters_.values()), gradients = part(parameters_.gradients());
    const auto rate = rate_of(range, learning_rate);
    const std::vector first = {first_moments_[i]}, second = {second_moments_[i]}, steps = {steps_};
    const auto apply = [&](const auto& fused) {
      fused(values, gradients, first, second, largest, steps, rate, config_.betas[0], config_.betas[1],
            range.weight_decay, config_.epsilon, /*amsgrad=*/false, /*maximize=*/false, scale, found_inf);
    };
    if (decaying_ == Decaying::decoupled)
      apply([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
    else
      apply([](const auto&... arguments) { at::_fused_adam_(arguments...); });
  }
}

void Adam::step(double learning_rate) { update(learning_rate); }
void Adam::step(const torch::Tensor& learning_rate) { update(learning_rate); }

void Adam::reset() {
  const torch::NoGradGuard no_grad;
  for (auto* moments : {&first_moments_, &second_moments_})
    for (auto& moment : *moments) moment.zero_();
  steps_.zero_();
}

template <class Use>
void Adam::for_each_view(const Use& use) const {
  for (const auto& view : parameters_.views())
    for (std::size_t i = 0; i < ranges_.size(); ++i)
      if (view.offset >= ranges_[i].first && view.offset < ranges_[i].first + ranges_[i].count) use(view, i);
}

NamedTensors Adam::state() const {
  NamedTensors state;
  for_each_view([&](const auto& view, std::size_t i) {
    state.emplace_back("first_moment." + view.name, part_of_range(first_moments_[i], ranges_[i], view));
    state.emplace_back("second_moment." + view.name, part_of_range(second_moments_[i], ranges_[i], view));
  });
  state.emplace_back("steps", steps_);
  return state;
}

}  // namespace metaformer
