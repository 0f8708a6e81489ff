#include "ops/linear.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/functional/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "base/error.h"
#include "base/platform.h"
#include "ops/recompute.h"

namespace metaformer {

namespace {

// Small whole numbers without a pattern that a wrong product could keep.
torch::Tensor whole_numbers(std::int64_t rows, std::int64_t columns, std::int64_t step) {
  return (torch::arange(rows * columns) * step).remainder(31).sub(15).view({rows, columns});
}

bool is_right(std::int64_t rows, std::int64_t inner, std::int64_t columns, bool transposed) {
  const auto a = whole_numbers(rows, inner, 7);
  const auto b = transposed ? whole_numbers(columns, inner, 11).t() : whole_numbers(inner, columns, 11);
  const auto expected = torch::mm(a, b).to(torch::kDouble);
  return torch::equal(torch::mm(a.to(torch::kFloat), b.to(torch::kFloat)).to(torch::kDouble), expected) &&
         torch::equal(torch::mm(a.to(torch::kDouble), b.to(torch::kDouble)), expected);
}

}  // namespace

bool products_are_right() {
  const torch::NoGradGuard no_grad;
  // Below, at and above what blocks and vectors hold.
  return is_right(3, 5, 7, false) && is_right(64, 48, 96, false) && is_right(65, 129, 33, true);
}

void require_right_products() {
  const auto path = mkl_path();
  if (products_are_right()) return;
  throw Error(ExitCode::failure, "this CPU's matrix products are wrong (" + describe(path) +
                                     "); set METAFORMER_MKL=own in the environment");
}

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
