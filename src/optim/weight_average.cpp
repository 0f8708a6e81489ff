#include "optim/weight_average.h"

#include <cmath>

namespace metaformer {

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
