#include "ops/linear.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/functional/linear.h>

#include "base/error.h"
#include "base/platform.h"
#include "ops/autocast.h"
#include "ops/kernel.h"

namespace metaformer {

namespace {

// Small whole numbers without a regularity that could hide a wrong product.
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
  // Sizes below, at and above those of blocks and vectors.
  return is_right(3, 5, 7, false) && is_right(64, 48, 96, false) && is_right(65, 129, 33, true);
}

void require_right_products() {
  const auto products = matrix_products();
  if (products_are_right()) return;
  throw Error(ExitCode::failure,
              "this CPU's matrix products are wrong (" + products + "); set METAFORMER_MKL=own in the environment");
}

using torch::Tensor;

static bool is_autocast() { return at::autocast::is_autocast_enabled(torch::kCPU); }

// In training also for tensors without gradients, so that frozen weights give the same results. `copy_oi`: of the
// weight in the type of the products, or undefined.
static bool is_one_node(const Tensor& x, const Tensor& weight_oi, const Tensor& copy_oi) {
  if (!torch::GradMode::is_enabled() || weight_oi.scalar_type() != torch::kFloat || x.numel() == 0) return false;
  if (x.is_cuda()) return copy_oi.defined();
  if (!x.is_cpu()) return false;
  if (is_autocast()) return at::autocast::get_autocast_dtype(torch::kCPU) == torch::kBFloat16;
  return x.scalar_type() == torch::kFloat;
}

// On a GPU the product of 16-bit numbers is stored as its sums, in float32.
static Tensor float_product(const Tensor& a, const Tensor& b) {
  return a.is_cuda() ? at::mm(a, b, torch::kFloat) : at::mm(a, b).to(torch::kFloat);
}

static Tensor float_sum_of_rows(const Tensor& x_ro) {
  return x_ro.is_cuda() ? x_ro.sum(0, /*keepdim=*/false, torch::kFloat) : x_ro.sum(0).to(torch::kFloat);
}

Tensor linear_product(const Tensor& x, const Tensor& weight_oi, const Tensor& bias_o) {
  const auto copy_oi = HalfWeights::copy_of(weight_oi);
  if (!is_one_node(x, weight_oi, copy_oi)) {
    const bool reads_copy = copy_oi.defined() && !torch::GradMode::is_enabled();
    return torch::nn::functional::linear(x, reads_copy ? copy_oi : weight_oi, bias_o);
  }
  const auto copy_o = HalfWeights::copy_of(bias_o);
  // The weight, detached, in the type of the products. Without a copy, autocast keeps the cast for all passes of a
  // step.
  const auto used_oi =
      copy_oi.defined()
          ? copy_oi
          : (is_autocast() ? at::autocast::cached_cast(torch::kBFloat16, weight_oi, torch::kCPU) : weight_oi).detach();
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  const auto forward = [&](Tensors& saved) {
    const auto used_x = x.to(used_oi.scalar_type());
    const auto x_ri = used_x.reshape({-1, x.size(-1)});
    const auto used_o = copy_o.defined() ? copy_o : bias_o.defined() ? bias_o.to(used_oi.scalar_type()) : Tensor();
    const auto y_ro = used_o.defined() ? at::addmm(used_o, x_ri, used_oi.t()) : at::mm(x_ri, used_oi.t());
    saved = {used_x, used_oi};
    auto sizes = x.sizes().vec();
    sizes.back() = weight_oi.size(0);
    return y_ro.view(sizes);
  };
  const auto backward = [type = x.scalar_type()](const Backward& in) -> Tensors {
    const auto &used_x = in.saved[0], &used = in.saved[1];
    const auto dy_ro = in.dy[0].reshape({-1, used.size(0)});
    Tensor dx, dweight_oi, dbias_o;
    if (in.needs(0)) dx = at::mm(dy_ro, used).view(used_x.sizes()).to(type);
    if (in.needs(1)) dweight_oi = float_product(dy_ro.t(), used_x.reshape({-1, used.size(1)}));
    if (in.needs(2)) dbias_o = float_sum_of_rows(dy_ro);
    return {dx, dweight_oi, dbias_o};
  };
  return own_node("a linear layer", {x, weight_oi, bias_o}, forward, backward);
}

}  // namespace metaformer
