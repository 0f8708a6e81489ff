#include "train/optim/optimizer.h"

#include <cmath>

namespace metaformer {

static double weight_decay_of(Decay decay, const WeightDecayConfig& config) {
  switch (decay) {
    case Decay::embeddings:
      return config.embedding_weight_decay.value_or(config.weight_decay);
    case Decay::matrices:
      return config.weight_decay;
    case Decay::none:
      break;
  }
  return 0;
}

std::vector<DecayRange> decay_ranges(const ParameterBuffer& parameters, const WeightDecayConfig& config,
                                     const std::function<bool(const ParameterBuffer::View&)>& takes) {
  std::vector<DecayRange> ranges;
  const auto& views = parameters.views();
  bool last_decays = false;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto& view = views[i];
    if (view.rate == 0 || !takes(view)) continue;
    const auto end = i + 1 < views.size() ? views[i + 1].offset : parameters.values().numel();
    const auto weight_decay = weight_decay_of(view.decay, config);
    const bool decays = view.decay != Decay::none;
    const bool joins = !ranges.empty() && ranges.back().first + ranges.back().count == view.offset &&
                       ranges.back().weight_decay == weight_decay && ranges.back().rate == view.rate &&
                       last_decays == decays;
    if (!joins) ranges.push_back({.first = view.offset, .count = 0, .weight_decay = weight_decay, .rate = view.rate});
    ranges.back().count = end - ranges.back().first;
    last_decays = decays;
  }
  return ranges;
}

torch::Tensor part_of_range(const torch::Tensor& elements, const DecayRange& range, const ParameterBuffer::View& view) {
  return elements.narrow(0, view.offset - range.first, view.count).view(view.parameter.sizes());
}

std::string Optimizer::first_not_finite() const {
  for (const auto& [name, tensor] : state())
    if (!tensor.isfinite().all().item<bool>()) return name;
  return "";
}

std::optional<torch::Tensor> as_optional(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

LossScale::LossScale(torch::Device device)
    : factor_(torch::full({}, initial, torch::TensorOptions().dtype(torch::kFloat).device(device))),
      found_inf_(torch::zeros_like(factor_)),
      good_steps_(torch::zeros({}, torch::TensorOptions().dtype(torch::kInt).device(device))) {}

torch::Tensor LossScale::unscaled_norm(const torch::Tensor& scaled_norm) {
  found_inf_.copy_(scaled_norm.isfinite().logical_not());
  return scaled_norm / factor_;
}

void LossScale::adapt() {
  constexpr double growth = 2, backoff = 0.5;
  constexpr std::int64_t growth_interval = 2000;
  at::_amp_update_scale_(factor_, good_steps_, found_inf_, growth, backoff, growth_interval);
  factor_.clamp_min_(smallest);
}

void LossScale::reset() {
  factor_.fill_(initial);
  good_steps_.zero_();
}

NamedTensors LossScale::state() const { return {{"loss_scale", factor_}, {"loss_scale_good_steps", good_steps_}}; }

WeightAverage::WeightAverage(ParameterBuffer& parameters, double decay)
    : parameters_(parameters), decay_(decay), other_(decay > 0 ? parameters.values().clone() : torch::Tensor()) {}

void WeightAverage::update(std::int64_t step) {
  if (!other_.defined()) return;
  const torch::NoGradGuard no_grad;
  const auto t = static_cast<double>(step);
  other_.lerp_(parameters_.values(), (1 - decay_) / (1 - std::pow(decay_, t)));
}

void WeightAverage::reset() {
  if (other_.defined()) other_.copy_(parameters_.values());
}

NamedTensors WeightAverage::state() const {
  NamedTensors state;
  if (!other_.defined()) return state;
  for (const auto& view : parameters_.views())
    state.emplace_back("trained." + view.name, ParameterBuffer::part(other_, view));
  return state;
}

void WeightAverage::exchange() {
  if (!other_.defined()) return;
  const torch::NoGradGuard no_grad;
  const auto values = parameters_.values().clone();
  parameters_.values().copy_(other_);
  other_.copy_(values);
}

}  // namespace metaformer
