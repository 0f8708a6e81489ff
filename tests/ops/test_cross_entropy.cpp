// The loss of predicted tokens against its formula in float64.

#include <limits>

#include "ops/functional.h"
#include "support/torch_catch.h"

namespace metaformer::test_cross_entropy {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The sum of the losses of rows with a target.
torch::Tensor by_definition(const torch::Tensor& logits_tv, const torch::Tensor& targets_t, double smoothing) {
  const auto rows_t = (targets_t >= 0).nonzero().flatten();
  const auto log_tv = torch::log_softmax(logits_tv.index_select(0, rows_t), 1);
  const auto targets_t1 = targets_t.index_select(0, rows_t).unsqueeze(1);
  auto q_tv = torch::full_like(log_tv, smoothing / static_cast<double>(logits_tv.size(1)));
  q_tv = q_tv.scatter_add(1, targets_t1, torch::full_like(targets_t1, 1 - smoothing, torch::kDouble));
  return -(q_tv * log_tv).sum();
}

struct Result {
  double loss;
  torch::Tensor gradient_tv;
};

template <class Loss>
Result result_of(const torch::Tensor& logits_tv, double factor, Loss loss_of) {
  auto leaf_tv = logits_tv.detach().clone().requires_grad_();
  const auto loss = loss_of(leaf_tv);
  (factor * loss).backward();
  return {loss.template item<double>(), leaf_tv.grad().to(torch::kDouble)};
}

torch::Tensor random_targets(std::int64_t rows, std::int64_t width) {
  auto targets_t = torch::randint(width, {rows}, torch::kLong);
  for (std::int64_t row = 0; row < rows; row += 3) targets_t[row] = -1;
  return targets_t;
}

}  // namespace

TEST_CASE("the cross-entropy and its gradient equal the formula", "[cross_entropy]") {
  const auto width = GENERATE(1, 15, 16, 40, 8001), rows = GENERATE(2, 50);
  const double smoothing = GENERATE(0.0, 0.1, 0.9), scale = GENERATE(1.0, 300.0), factor = 0.25;
  CAPTURE(width, rows, smoothing, scale);
  const auto logits_tv = scale * torch::randn({rows, width});
  const auto targets_t = random_targets(rows, width);
  const auto ours =
      result_of(logits_tv, factor, [&](const auto& x_tv) { return cross_entropy_sum(x_tv, targets_t, smoothing); });
  const auto exact = result_of(logits_tv.to(torch::kDouble), factor,
                               [&](const auto& x_tv) { return by_definition(x_tv, targets_t, smoothing); });
  CHECK(ours.loss == Approx(exact.loss).epsilon(2e-6).margin(2e-6 * scale));
  // Also for large logits, because a softmax that is not tiny has a logit near the largest one.
  CHECK((ours.gradient_tv - exact.gradient_tv).abs().max().item<double>() < 8e-7 * factor);
  CHECK(ours.gradient_tv[0].abs().max().item<double>() == 0);
}

TEST_CASE("infinite and NaN logits give the same loss as the formula", "[cross_entropy]") {
  const auto targets_t = torch::zeros({1}, torch::kLong);
  const auto loss_of = [&](std::vector<double> logits) {
    return cross_entropy_sum(torch::tensor(logits, torch::kDouble).to(torch::kFloat).unsqueeze(0), targets_t)
        .item<double>();
  };
  CHECK(loss_of({1, -infinity, 1}) == Approx(std::log(2.0)));
  CHECK(loss_of({-infinity, 1, 1}) == infinity);
  CHECK(std::isnan(loss_of({1, std::numeric_limits<double>::quiet_NaN()})));
  CHECK(std::isnan(loss_of({infinity, 1})));
}

TEST_CASE("a target outside the vocabulary is an error, and rows without targets have a loss of 0", "[cross_entropy]") {
  const auto logits_tv = torch::randn({2, 5});
  CHECK_THROWS(cross_entropy_sum(logits_tv, torch::tensor({1, 5})));
  CHECK(cross_entropy_sum(logits_tv, torch::tensor({-1, -1})).item<double>() == 0);
  CHECK(cross_entropy_sum(logits_tv.narrow(0, 0, 0), torch::zeros({0}, torch::kLong)).item<double>() == 0);
}

}  // namespace metaformer::test_cross_entropy
