#include "ops/added_linear.h"

#include "ops/first_order.h"

namespace metaformer {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

BranchEnd BranchEnd::of(const Tensor& weight_di, double dropout, Pass& pass) {
  return {.weight_di = weight_of_products(weight_di), .mask = HostMask::of(dropout, pass)};
}

Tensor BranchEnd::add_to(const Tensor& x_bcd, const Tensor& t_ri, const std::optional<Tensor>& bias_d) const {
  auto y_bcd = linear_of_rows(t_ri, weight_di, bias_d).view(x_bcd.sizes());
  if (mask.drops()) y_bcd = drop_on_host(y_bcd, mask);
  return x_bcd + y_bcd;
}

LinearGradients BranchEnd::gradients(const Tensor& dout_bcd, const Tensor& t_ri, const LinearNeeds& needs) const {
  auto dy_bcd = dout_bcd.to(weight_di.scalar_type());
  if (mask.drops()) dy_bcd = drop_on_host(dy_bcd, mask);
  return linear_gradients(dy_bcd.view({-1, weight_di.size(0)}), t_ri, weight_di, needs);
}

void BranchEnd::keep_in(AutogradContext& context) const { mask.keep_in(context); }

BranchEnd BranchEnd::kept_in(AutogradContext& context, const Tensor& weight_di) {
  return {.weight_di = weight_di, .mask = HostMask::kept_in(context)};
}

namespace {

class AddLinear : public torch::autograd::Function<AddLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_bcd, const Tensor& t_bci, const Tensor& /*weight_di*/,
                        const std::optional<Tensor>& bias_d, const BranchEnd& end) {
    const auto t_ri = t_bci.to(end.weight_di.scalar_type()).reshape({-1, t_bci.size(-1)});
    context->save_for_backward({t_ri, end.weight_di});
    context->saved_data["type"] = t_bci.scalar_type();
    context->saved_data["needs_bias"] = bias_d.has_value() && bias_d->requires_grad();
    end.keep_in(*context);
    return end.add_to(x_bcd, t_ri, bias_d);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a residual connection");
    const auto saved = context->get_saved_variables();
    const auto &t_ri = saved[0], &weight_di = saved[1];
    auto& data = context->saved_data;
    const auto dout_bcd = gradients[0].contiguous();
    const LinearNeeds needs{
        .x = context->needs_input_grad(1), .weight = context->needs_input_grad(2), .bias = data["needs_bias"].toBool()};
    auto found = BranchEnd::kept_in(*context, weight_di).gradients(dout_bcd, t_ri, needs);
    auto sizes = dout_bcd.sizes().vec();
    sizes.back() = weight_di.size(1);
    if (needs.x) found.dx_ri = found.dx_ri.view(sizes).to(data["type"].toScalarType());
    return {dout_bcd, found.dx_ri, found.dweight_oi, found.dbias_o, {}};
  }
};

}  // namespace

bool can_add_linear(const Tensor& x_bcd, const Tensor& t_bci, const Tensor& weight_di) {
  return can_use_linear_parts(t_bci, weight_di) && x_bcd.scalar_type() == torch::kFloat && x_bcd.is_contiguous();
}

Tensor add_linear(const Tensor& x_bcd, const Tensor& t_bci, const Tensor& weight_di, const Tensor& bias_d,
                  double dropout, Pass& pass) {
  const auto end = BranchEnd::of(weight_di, dropout, pass);
  const auto bias = bias_d.defined() ? std::optional(bias_d) : std::nullopt;
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::DispatchKey::AutocastCPU);
  return AddLinear::apply(x_bcd, t_bci, weight_di, bias, end);
}

}  // namespace metaformer
