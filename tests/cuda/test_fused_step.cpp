// The operators of the loss and of the update of weights with the emulated kernels, against LibTorch's operators in
// float64 and on the CPU.

#include <torch/autograd.h>

#include "ops/fused_cross_entropy.h"
#include "ops/fused_update.h"
#include "support/failure.h"
#include "support/torch_catch.h"

namespace metaformer::test_fused_step {

namespace {

using torch::Tensor;

constexpr std::int64_t tokens = 21, vocabulary = 65;

Tensor targets() {
  auto targets_t = torch::arange(tokens) * 17 % vocabulary;
  targets_t[3] = targets_t[20] = -1;
  return targets_t;
}

Tensor exact_gradient(const Tensor& logits_tv, double smoothing, double factor) {
  const auto wide_tv = logits_tv.detach().to(torch::kDouble).requires_grad_();
  const auto loss = at::cross_entropy_loss(wide_tv, targets(), {}, at::Reduction::Sum, -1, smoothing);
  return torch::autograd::grad({factor * loss}, {wide_tv}).front();
}

double tolerance_of(torch::ScalarType type) {
  if (type == torch::kFloat) return 1e-6;
  return type == torch::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

}  // namespace

TEST_CASE("the fused loss has the value and the gradient of LibTorch's operators", "[fused]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16, torch::kHalf);
  const double smoothing = GENERATE(0.0, 0.1);
  const std::int64_t padding = GENERATE(0, 7);
  torch::manual_seed(1);
  const auto padded = torch::randn({tokens, vocabulary + padding}).to(type).requires_grad_();
  const auto logits_tv = padded.narrow(1, 0, vocabulary);
  const auto exact =
      at::cross_entropy_loss(logits_tv.to(torch::kDouble), targets(), {}, at::Reduction::Sum, -1, smoothing);
  // Backward starts from the expected number, from another one, and from one that nothing expected.
  for (const auto& expected : {torch::full({}, 0.25), torch::full({}, 0.5), Tensor()}) {
    const auto loss = fused_cross_entropy_sum(logits_tv, targets(), smoothing, expected);
    CHECK(loss.scalar_type() == torch::kFloat);
    CHECK(loss.item<double>() == Approx(exact.item<double>()).epsilon(1e-6));
    const auto gradient_tv = torch::autograd::grad({0.25 * loss}, {logits_tv}).front();
    CHECK(gradient_tv.scalar_type() == type);
    CHECK(relative_error(gradient_tv, exact_gradient(logits_tv, smoothing, 0.25)) < tolerance_of(type));
  }
}

TEST_CASE("a graph of the fused loss that is kept has the correct gradient each time", "[fused]") {
  torch::manual_seed(2);
  const auto logits_tv = torch::randn({tokens, vocabulary}).requires_grad_();
  const auto loss = fused_cross_entropy_sum(logits_tv, targets(), 0, torch::full({}, 0.25));
  std::vector<Tensor> gradients;
  const std::vector<double> factors = {2, 0.25, 0.25, 3};
  for (const double factor : factors)
    gradients.push_back(torch::autograd::grad({factor * loss}, {logits_tv}, {}, /*retain_graph=*/true).front());
  for (std::size_t i = 0; i < factors.size(); ++i)
    CHECK(relative_error(gradients[i], exact_gradient(logits_tv, 0, factors[i])) < 1e-6);
}

TEST_CASE("a loss expects a gradient only within a scope, in training, and for large logits", "[fused]") {
  const auto large_tv = torch::zeros({1 << 10, 1 << 13}, torch::kBFloat16).requires_grad_();
  CHECK_FALSE(ExpectedLossGradient::of(large_tv).defined());
  {
    const ExpectedLossGradient outer([] { return torch::full({}, 2.0); });
    CHECK(ExpectedLossGradient::of(large_tv).item<double>() == 2);
    {
      const ExpectedLossGradient inner([] { return torch::full({}, 3.0); });
      CHECK(ExpectedLossGradient::of(large_tv).item<double>() == 3);
    }
    CHECK(ExpectedLossGradient::of(large_tv).item<double>() == 2);
    CHECK_FALSE(ExpectedLossGradient::of(large_tv.detach()).defined());
    CHECK_FALSE(ExpectedLossGradient::of(large_tv.narrow(0, 0, 1 << 9)).defined());
    const torch::NoGradGuard no_grad;
    CHECK_FALSE(ExpectedLossGradient::of(large_tv).defined());
  }
  CHECK_FALSE(ExpectedLossGradient::of(large_tv).defined());
}

TEST_CASE("the fused norm and update train as LibTorch's operators", "[fused]") {
  const bool decoupled = GENERATE(true, false), is_scaled = GENERATE(false, true), on_device = GENERATE(false, true);
  torch::manual_seed(3);
  const std::vector<double> decays = {0.1, 0}, rates = {1, 0.5};
  std::vector<FusedAdamRange> ranges;
  std::vector<Tensor> values, first_moments, second_moments;  // of LibTorch
  for (std::size_t i = 0; i < 2; ++i) {
    const auto whole = torch::randn({3000});
    ranges.push_back({.values = whole,
                      .first_moments = torch::zeros_like(whole),
                      .second_moments = torch::zeros_like(whole),
                      .weight_decay = decays[i],
                      .rate = rates[i]});
    values.push_back(whole.clone());
    first_moments.push_back(torch::zeros_like(whole));
    second_moments.push_back(torch::zeros_like(whole));
  }
  const auto steps = torch::zeros({}), library_steps = torch::zeros({}), factor = torch::zeros({}),
             divisor = torch::full({}, 1024.0), found_inf = torch::zeros({});
  constexpr double rate = 1e-2, limit = 1;
  const auto divisor_of_step = is_scaled ? std::optional(divisor) : std::nullopt;
  const auto found_in_step = is_scaled ? std::optional(found_inf) : std::nullopt;
  for (int step = 0; step < 5; ++step) {
    auto gradients = torch::randn({2, 3000});
    if (is_scaled) gradients.mul_(1024);
    const bool overflows = is_scaled && step == 2;
    if (overflows) gradients[1][7] = std::numeric_limits<float>::infinity();
    const auto norm = fused_gradient_norm(
        gradients.view(-1), {.divisor = divisor_of_step, .found_inf = found_in_step, .factor = factor, .limit = limit});
    for (std::size_t i = 0; i < 2; ++i) ranges[i].gradients = gradients[static_cast<std::int64_t>(i)];
    using Rate = std::variant<double, Tensor>;
    fused_adam({.decoupled = decoupled,
                .betas = {0.9, 0.99},
                .epsilon = 1e-8,
                .factor = factor,
                .divisor = divisor_of_step,
                .found_inf = found_in_step},
               ranges, steps, on_device ? Rate(torch::full({}, rate)) : Rate(rate));
    if (is_scaled) CHECK(found_inf.item<double>() == (overflows ? 1 : 0));
    if (overflows) continue;
    if (is_scaled) gradients.div_(1024);
    CHECK(norm.item<double>() == Approx(gradients.norm().item<double>()).epsilon(1e-5));
    gradients.mul_(limit / (gradients.norm() + 1e-6));
    library_steps.add_(1);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto apply = [&](const auto&... all) { decoupled ? at::_fused_adamw_(all...) : at::_fused_adam_(all...); };
      apply(std::vector{values[i]}, std::vector{gradients[static_cast<std::int64_t>(i)]}, std::vector{first_moments[i]},
            std::vector{second_moments[i]}, std::vector<Tensor>(), std::vector{library_steps}, rate * rates[i], 0.9,
            0.99, decays[i], 1e-8, /*amsgrad=*/false, /*maximize=*/false);
    }
  }
  CHECK(steps.item<double>() == library_steps.item<double>());
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(relative_error(ranges[i].values, values[i]) < 1e-5);
    CHECK(relative_error(ranges[i].first_moments, first_moments[i]) < 1e-5);
    CHECK(relative_error(ranges[i].second_moments, second_moments[i]) < 1e-5);
  }
}

TEST_CASE("the fused update writes the copy of the weights, and counts only writes without one", "[fused]") {
  const auto type = GENERATE(torch::kBFloat16, torch::kHalf);
  torch::manual_seed(4);
  const auto values = torch::randn({3000}), copies = torch::zeros({3000}, type), steps = torch::zeros({});
  const auto step = [&](const Tensor& copies_of_step) {
    const FusedAdamRange range{.values = values,
                               .gradients = torch::randn({3000}),
                               .first_moments = torch::zeros({3000}),
                               .second_moments = torch::zeros({3000}),
                               .copies = copies_of_step};
    fused_adam({.betas = {0.9, 0.99}, .epsilon = 1e-8}, {range}, steps, 1e-2);
  };
  const auto before = values._version();
  step(copies);
  CHECK(torch::equal(copies, values.to(type)));
  CHECK(values._version() == before);
  step({});
  CHECK_FALSE(torch::equal(copies, values.to(type)));
  CHECK(values._version() > before);
}

}  // namespace metaformer::test_fused_step
