// The functions of rows with the emulated kernels, against LibTorch's operators in float64.

#include <torch/autograd.h>

#include "ops/functional.h"
#include "ops/fused_functional.h"
#include "support/any_block.h"
#include "support/torch_catch.h"

namespace metaformer::test_fused_functional {

namespace {

using torch::Tensor;

double tolerance_of(torch::ScalarType type) {
  if (type == torch::kFloat) return 2e-6;
  return type == torch::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

// y and the gradients of x and the bias.
std::vector<Tensor> outcome(const Tensor& y, const Tensor& x, const Tensor& bias, const Tensor& dy) {
  auto all = torch::autograd::grad({y}, {x, bias}, {dy.to(y.scalar_type())});
  all.insert(all.begin(), y.detach());
  return all;
}

}  // namespace

TEST_CASE("a fused activation has the values and gradients of operators", "[fused]") {
  const auto f = any_activation();
  const bool gated = GENERATE(false, true);
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16, torch::kHalf);
  CAPTURE(kind_of(f), gated, type);
  torch::manual_seed(1);
  const auto x = (2 * torch::randn({3, 7, 40})).to(type).requires_grad_(), bias = torch::randn({40}).requires_grad_();
  const auto dy = torch::randn({3, 7, gated ? 20 : 40}).to(type);
  const auto y = fused_activation(function_of(f), x, bias, gated);
  CHECK(y.scalar_type() == type);
  const auto ours = outcome(y, x, bias, dy);
  const auto wide_x = x.detach().to(torch::kDouble).requires_grad_(),
             wide_bias = bias.detach().to(torch::kDouble).requires_grad_();
  const auto wide_y = gated ? gate(f, wide_x, wide_bias) : activate(f, wide_x, wide_bias);
  const auto exact = outcome(wide_y, wide_x, wide_bias, dy);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    CHECK(relative_error(ours[i], exact[i]) < tolerance_of(type));
  }
}

TEST_CASE("a fused activation has the gradients of chosen inputs, and takes views", "[fused]") {
  torch::manual_seed(2);
  const ActivationFunction f{ActivationFunction::Kind::gelu};
  const auto x = torch::randn({5, 4, 12}).requires_grad_(), bias = torch::randn({12});
  const auto whole = fused_activation(f, x, bias, false);
  const auto view = x.transpose(0, 1), of_view = fused_activation(f, view, bias, false);
  CHECK(torch::equal(of_view.transpose(0, 1), whole));
  const auto dy = torch::randn({5, 4, 12});
  const auto gradient = torch::autograd::grad({whole}, {x}, {dy}).front();
  CHECK(torch::equal(torch::autograd::grad({of_view}, {x}, {dy.transpose(0, 1)}).front(), gradient));
  const auto frozen = x.detach(), trained = bias.detach().clone().requires_grad_();
  const auto of_bias = fused_activation(f, frozen, trained, false);
  CHECK(relative_error(torch::autograd::grad({of_bias}, {trained}, {dy}).front(),
                       gradient.sum(torch::IntArrayRef{0, 1})) < 1e-6);
  const auto without = fused_activation(f, x, {}, false);
  CHECK(torch::equal(without, fused_activation(f, x, torch::zeros({12}), false)));
  CHECK(torch::autograd::grad({without}, {x}, {dy}).front().defined());
  const torch::NoGradGuard no_grad;
  CHECK_FALSE(fused_activation(f, x, bias, false).requires_grad());
}

TEST_CASE("a fused rotation has the values and gradients of operators", "[fused]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16, torch::kHalf);
  const std::int64_t pairs = GENERATE(3, 4, 8);
  CAPTURE(type, pairs);
  torch::manual_seed(4);
  // [b, n, c, k] as it lies in a projection.
  const auto x = torch::randn({2, 7, 3, 16}).to(type).transpose(1, 2).requires_grad_();
  const auto angle = 3 * torch::randn({7, pairs}), cos = angle.cos(), sin = angle.sin();
  const auto dy = torch::randn({2, 3, 7, 16}).to(type);
  const auto y = fused_rotation(x, cos, sin);
  CHECK(y.scalar_type() == type);
  const auto wide_x = x.detach().to(torch::kDouble).requires_grad_();
  const auto wide_y = rotate_pairs(wide_x, cos.to(torch::kDouble), sin.to(torch::kDouble));
  CHECK(relative_error(y, wide_y) < tolerance_of(type));
  const auto exact = torch::autograd::grad({wide_y}, {wide_x}, {dy.to(torch::kDouble)}).front();
  CHECK(relative_error(torch::autograd::grad({y}, {x}, {dy}).front(), exact) < tolerance_of(type));
  CHECK(torch::equal(fused_rotation(x.detach().contiguous(), cos, sin), y));
}

TEST_CASE("a fused embedding has the rows and the gradient of operators", "[fused]") {
  const std::int64_t vocabulary = GENERATE(5, 300);
  torch::manual_seed(5);
  const auto table_vd = torch::randn({vocabulary, 12}).requires_grad_();
  const auto ids_bc = torch::randint(vocabulary, {4, 50}, torch::kLong), dy_bcd = torch::randn({4, 50, 12});
  const auto ours = fused_embedding(table_vd, ids_bc), theirs = torch::embedding(table_vd, ids_bc);
  CHECK(torch::equal(ours, theirs));
  const auto gradient = [&](const Tensor& y) { return torch::autograd::grad({y}, {table_vd}, {dy_bcd}).front(); };
  const auto first = gradient(ours);
  CHECK(relative_error(first, gradient(theirs)) < 1e-6);
  CHECK(torch::equal(gradient(fused_embedding(table_vd, ids_bc)), first));
  const auto turned = fused_embedding(table_vd, ids_bc.t());
  CHECK(torch::equal(turned.transpose(0, 1), theirs));
}

TEST_CASE("a table that is also the output layer gets both gradients once", "[fused]") {
  torch::manual_seed(6);
  const auto table_vd = torch::randn({40, 12}).requires_grad_();
  const auto ids_t = torch::randint(40, {100}, torch::kLong), weight_tv = torch::randn({100, 40});
  const auto gradient = [&](const Tensor& x_td) {
    const auto logits_tv = torch::tanh(x_td).matmul(table_vd.t());
    return torch::autograd::grad({(logits_tv * weight_tv).sum()}, {table_vd}).front();
  };
  CHECK(relative_error(gradient(fused_embedding(table_vd, ids_t)), gradient(torch::embedding(table_vd, ids_t))) < 1e-6);
}

TEST_CASE("activations on the CPU take a bias, and leave it to the linear layer", "[fused]") {
  torch::manual_seed(3);
  const auto x = torch::randn({4, 6}), bias = torch::randn({6});
  CHECK_FALSE(activation_adds_bias(bias));
  CHECK_FALSE(activation_adds_bias({}));
  CHECK_FALSE(has_fused_activation(x, bias));
  CHECK(torch::equal(activate(GeluConfig{}, x, bias), activate(GeluConfig{}, x + bias)));
  CHECK(torch::equal(gate(SiluConfig{}, x, bias), gate(SiluConfig{}, x + bias)));
}

}  // namespace metaformer::test_fused_functional
