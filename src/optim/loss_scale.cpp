#include "optim/loss_scale.h"

namespace metaformer {

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

}  // namespace metaformer
