#include "ops/norms.h"

#include <algorithm>

#include "cpu/rms_norm.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

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

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gain's gradient is summed over chunks of rows, then over the chunks: always the same ones.
constexpr std::int64_t most_chunks = 16;

std::int64_t grain_of(std::int64_t width) { return std::max<std::int64_t>(1, (1 << 14) / width); }

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& given, const Tensor& gain_d, double epsilon) {
    const auto x = given.contiguous();
    const auto [y, factor_r] = normalise_by_rms(x, gain_d, epsilon);
    context->save_for_backward({x, gain_d, factor_r});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("rms_norm");
    const auto saved = context->get_saved_variables();
    const auto [dx, dgain_d] = rms_norm_gradients(saved[0], saved[1], saved[2], gradients[0].contiguous());
    return {dx, dgain_d, {}};
  }
};

}  // namespace

RmsNormed normalise_by_rms(const Tensor& x, const Tensor& gain_d, double epsilon) {
  const auto width = gain_d.size(0), rows = x.numel() / width;
  RmsNormed result{torch::empty_like(x), torch::empty({rows}, x.options())};
  at::parallel_for(0, rows, grain_of(width), [&](std::int64_t begin, std::int64_t end) {
    normalise_by_rms(x.const_data_ptr<float>() + begin * width, gain_d.const_data_ptr<float>(),
                     result.y.data_ptr<float>() + begin * width, result.factor_r.data_ptr<float>() + begin, end - begin,
                     width, static_cast<float>(epsilon));
  });
  return result;
}

RmsNormGradients rms_norm_gradients(const Tensor& x, const Tensor& gain_d, const Tensor& factor_r, const Tensor& dy) {
  const auto width = gain_d.size(0), rows = x.numel() / width;
  auto dx = torch::empty_like(x);
  const auto chunk = std::max<std::int64_t>(1, (rows + most_chunks - 1) / most_chunks);
  const auto chunks = (rows + chunk - 1) / chunk;
  const auto gain_gradients = torch::zeros({chunks, width}, x.options());
  at::parallel_for(
      0, chunks, std::max<std::int64_t>(1, grain_of(width) / chunk), [&](std::int64_t begin, std::int64_t end) {
        for (auto i = begin; i < end; ++i) {
          const auto first = i * chunk;
          rms_norm_gradients({.x = x.const_data_ptr<float>() + first * width,
                              .gain = gain_d.const_data_ptr<float>(),
                              .factors = factor_r.const_data_ptr<float>() + first,
                              .dy = dy.const_data_ptr<float>() + first * width,
                              .rows = std::min(chunk, rows - first),
                              .width = width},
                             dx.data_ptr<float>() + first * width, gain_gradients.data_ptr<float>() + i * width);
        }
      });
  return {dx, gain_gradients.sum(0)};
}

Tensor rms_norm(const Tensor& x, const Tensor& gain_d, double epsilon) {
  const auto type = torch::promote_types(x.scalar_type(), gain_d.scalar_type());
  const auto wide = x.to(type);
  const bool has_kernel = x.is_cpu() && type == torch::kFloat && gain_d.is_contiguous() && x.numel() > 0;
  if (has_kernel) return RmsNormFunction::apply(wide, gain_d, epsilon);
  return torch::rms_norm(wide, {gain_d.size(0)}, gain_d.to(type), epsilon);
}

}  // namespace metaformer
