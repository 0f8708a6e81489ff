#include "ops/linear_product.h"

#include <ATen/autocast_mode.h>

#include "ops/first_order.h"

namespace metaformer {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

bool is_autocast() { return at::autocast::is_autocast_enabled(torch::kCPU); }

class LinearProduct : public torch::autograd::Function<LinearProduct> {
 public:
  // used_oi: weight_of_products(weight_oi).
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight_oi,
                        const std::optional<Tensor>& bias_o, const Tensor& used_oi) {
    const auto used_x = x.to(used_oi.scalar_type());
    const auto y_ro = linear_of_rows(used_x.reshape({-1, x.size(-1)}), used_oi, bias_o);
    context->save_for_backward({used_x, used_oi});
    context->saved_data["type"] = x.scalar_type();
    context->saved_data["needs_bias"] = bias_o.has_value() && bias_o->requires_grad();
    auto sizes = x.sizes().vec();
    sizes.back() = weight_oi.size(0);
    return y_ro.view(sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a linear layer");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &used_oi = saved[1];
    auto found = linear_gradients(gradients[0].reshape({-1, used_oi.size(0)}), x.reshape({-1, x.size(-1)}), used_oi,
                                  {.x = context->needs_input_grad(0),
                                   .weight = context->needs_input_grad(1),
                                   .bias = context->saved_data["needs_bias"].toBool()});
    if (found.dx_ri.defined()) found.dx_ri = found.dx_ri.view(x.sizes()).to(context->saved_data["type"].toScalarType());
    return {found.dx_ri, found.dweight_oi, found.dbias_o, {}};
  }
};

}  // namespace

bool can_use_linear_parts(const Tensor& x, const Tensor& weight_oi) {
  if (!x.is_cpu() || !torch::GradMode::is_enabled() || weight_oi.scalar_type() != torch::kFloat || x.numel() == 0)
    return false;
  if (is_autocast()) return at::autocast::get_autocast_dtype(torch::kCPU) == torch::kBFloat16;
  return x.scalar_type() == torch::kFloat;
}

Tensor weight_of_products(const Tensor& weight_oi) {
  return (is_autocast() ? at::autocast::cached_cast(torch::kBFloat16, weight_oi, torch::kCPU) : weight_oi).detach();
}

Tensor linear_of_rows(const Tensor& x_ri, const Tensor& weight_oi, const std::optional<Tensor>& bias_o) {
  if (!bias_o) return at::mm(x_ri, weight_oi.t());
  return at::addmm(bias_o->to(weight_oi.scalar_type()), x_ri, weight_oi.t());
}

LinearGradients linear_gradients(const Tensor& dy_ro, const Tensor& x_ri, const Tensor& weight_oi,
                                 const LinearNeeds& needs) {
  LinearGradients found;
  if (needs.x) found.dx_ri = at::mm(dy_ro, weight_oi);
  if (needs.weight) found.dweight_oi = at::mm(dy_ro.t(), x_ri).to(torch::kFloat);
  if (needs.bias) found.dbias_o = dy_ro.sum(0).to(torch::kFloat);
  return found;
}

Tensor linear_product(const Tensor& x, const Tensor& weight_oi, const Tensor& bias_o) {
  if (!can_use_linear_parts(x, weight_oi)) return torch::nn::functional::linear(x, weight_oi, bias_o);
  const auto bias = bias_o.defined() ? std::optional(bias_o) : std::nullopt;
  const auto used_oi = weight_of_products(weight_oi);
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::DispatchKey::AutocastCPU);
  return LinearProduct::apply(x, weight_oi, bias, used_oi);
}

}  // namespace metaformer
