#include "train/optim/sgd.h"

namespace metaformer {

Sgd::Sgd(ParameterBuffer& parameters, const SgdConfig& config, GradientScale scale)
    : parameters_(parameters),
      config_(config),
      ranges_(decay_ranges(parameters, config)),
      scale_(std::move(scale)),
      momentum_(config.momentum > 0 ? torch::zeros_like(parameters.values()) : torch::Tensor()) {}

template <class Rate>
void Sgd::update(const Rate& learning_rate) {
  const torch::NoGradGuard no_grad;
  const auto scale = as_optional(scale_.divisor), found_inf = as_optional(scale_.found_inf);
  for (const auto& range : ranges_) {
    const auto part = [&](const torch::Tensor& buffer) {
      return buffer.defined() ? std::vector{buffer.narrow(0, range.first, range.count)} : std::vector<torch::Tensor>{};
    };
    const auto values = part(parameters_.values()), gradients = part(parameters_.gradients());
    // Not as a first step: without dampening, a momentum of zeros becomes the gradient anyway.
    at::_fused_sgd_(values, gradients, part(momentum_), range.weight_decay, config_.momentum,
                    rate_of(range, learning_rate), /*dampening=*/0, /*nesterov=*/false,
                    /*maximize=*/false, /*is_first_step=*/false, scale, found_inf);
  }
}

void Sgd::step(double learning_rate) { update(learning_rate); }
void Sgd::step(const torch::Tensor& learning_rate) { update(learning_rate); }

void Sgd::reset() {
  if (momentum_.defined()) momentum_.zero_();
}

NamedTensors Sgd::state() const {
  NamedTensors state;
  if (!momentum_.defined()) return state;
  for (const auto& view : parameters_.views())
    if (view.rate > 0) state.emplace_back("momentum." + view.name, ParameterBuffer::part(momentum_, view));
  return state;
}

}  // namespace metaformer
