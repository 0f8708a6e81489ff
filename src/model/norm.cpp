#include "model/norm.h"

#include "ops/rms_norm.h"

namespace metaformer {

NormImpl::NormImpl(const NormConfig& config, std::int64_t width, bool bias) : config_(config) {
  weight_ = add_parameter("weight", torch::ones(width), {.init = Init::ones()});
  if (bias && has_bias(config)) bias_ = add_parameter("bias", torch::zeros(width), {.init = Init::zeros()});
}

static torch::Tensor normalised(const LayerNormConfig& config, const torch::Tensor& x_bcd, const torch::Tensor& weight,
                                const torch::Tensor& bias) {
  return torch::layer_norm(x_bcd, weight.sizes(), weight, bias, config.epsilon);
}

static torch::Tensor normalised(const RmsNormConfig& config, const torch::Tensor& x_bcd, const torch::Tensor& weight,
                                const torch::Tensor&) {
  return rms_norm(x_bcd, weight, config.epsilon);
}

torch::Tensor NormImpl::forward(const torch::Tensor& x_bcd) {
  return std::visit([&](const auto& options) { return normalised(options, x_bcd, weight_, bias_); }, config_);
}

}  // namespace metaformer
