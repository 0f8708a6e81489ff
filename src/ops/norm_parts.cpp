#include "ops/norm_parts.h"

#include "ops/rms_norm.h"

namespace metaformer {

using torch::Tensor;

Normalised normalise(const NormConfig& config, const Tensor& x, const Tensor& gain_d,
                     const std::optional<Tensor>& bias_d) {
  const double epsilon = epsilon_of(config);
  if (is<RmsNormConfig>(config)) {
    auto [y, factor_r] = normalise_by_rms(x, gain_d, epsilon);
    return {.y = std::move(y), .mean = {}, .scale = std::move(factor_r)};
  }
  auto [y, mean, scale] = at::native_layer_norm(x, gain_d.sizes(), gain_d, bias_d, epsilon);
  return {.y = std::move(y), .mean = std::move(mean), .scale = std::move(scale)};
}

NormGradients norm_gradients(const Tensor& dy, const Tensor& x, const Normalised& normalised, const Tensor& gain_d,
                             const std::optional<Tensor>& bias_d) {
  if (!normalised.mean.defined()) {
    auto [dx, dgain_d] = rms_norm_gradients(x, gain_d, normalised.scale, dy);
    return {.dx = std::move(dx), .dgain_d = std::move(dgain_d), .dbias_d = {}};
  }
  auto [dx, dgain_d, dbias_d] = at::native_layer_norm_backward(dy, x, gain_d.sizes(), normalised.mean, normalised.scale,
                                                               gain_d, bias_d, {true, true, bias_d.has_value()});
  return {.dx = std::move(dx), .dgain_d = std::move(dgain_d), .dbias_d = std::move(dbias_d)};
}

}  // namespace metaformer
