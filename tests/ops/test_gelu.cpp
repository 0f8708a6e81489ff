// GELU and its slope by our own kernel, against the definition in float64.

#include <cmath>
#include <limits>

#include "ops/gelu.h"
#include "ops/gelu_kernel.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

double distribution(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double slope_at(double x) { return distribution(x) + x * std::exp(-x * x / 2) * 0.3989422804014327; }

}  // namespace

TEST_CASE("GELU and its slope are right over all of their range", "[gelu]") {
  std::vector<float> x;
  for (double at = -14; at < 14; at += 1e-4) x.push_back(static_cast<float>(at));
  std::vector<float> y(x.size()), slope(x.size());
  gelu_with_slope(x.data(), y.data(), slope.data(), static_cast<std::int64_t>(x.size()));
  double worst_y = 0, worst_slope = 0, worst_tail = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact_y = x[i] * distribution(x[i]), exact_slope = slope_at(x[i]);
    worst_y = std::max(worst_y, std::abs(y[i] - exact_y) / std::max(std::abs(exact_y), 0.1));
    worst_slope = std::max(worst_slope, std::abs(slope[i] - exact_slope) / std::max(std::abs(exact_slope), 0.1));
    if (std::abs(exact_y) > 1e-30) worst_tail = std::max(worst_tail, std::abs(y[i] / exact_y - 1));
  }
  CHECK(worst_y < 2e-6);
  CHECK(worst_slope < 2e-6);
  CHECK(worst_tail < 1e-5);  // of the exponential's argument, which float32 rounds
}

TEST_CASE("GELU of infinities has its limits, of NaN is NaN", "[gelu]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {infinity, -infinity, 0, 3e38f, -3e38f, std::nanf("")};
  std::vector<float> y(x.size()), slope(x.size());
  gelu_with_slope(x.data(), y.data(), slope.data(), static_cast<std::int64_t>(x.size()));
  CHECK(y[0] == infinity);
  CHECK(slope[0] == 1);
  CHECK(y[1] == 0);
  CHECK(slope[1] == 0);
  CHECK(y[2] == 0);
  CHECK(slope[2] == 0.5f);
  CHECK(y[3] == 3e38f);
  CHECK(y[4] == 0);
  CHECK(std::isnan(y[5]));
  CHECK(std::isnan(slope[5]));
}

TEST_CASE("GELU writes as many numbers as it is given", "[gelu]") {
  for (std::size_t count : {0, 1, 15, 16, 17, 31, 40}) {
    std::vector<float> x(count, 1.5f), y(count + 1, 7.0f), slope(count + 1, 7.0f);
    gelu_with_slope(x.data(), y.data(), slope.data(), static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) REQUIRE(y[i] == y[0]);
    CHECK(y[count] == 7.0f);
    CHECK(slope[count] == 7.0f);
  }
}

TEST_CASE("GELU gives the library's values and gradients", "[gelu]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  const double tolerance = type == torch::kFloat ? 1e-6 : 0.008;
  const auto x = (torch::randn({37, 53}) * 2).to(type), dy = torch::randn({37, 53}).to(type);
  auto ours = x.clone().requires_grad_(), exact = x.to(torch::kDouble).requires_grad_();
  const auto y = metaformer::gelu(ours), expected = torch::gelu(exact);
  y.backward(dy);
  expected.backward(dy.to(torch::kDouble));
  CHECK(y.scalar_type() == type);
  CHECK(torch::allclose(y.to(torch::kDouble), expected, tolerance, tolerance));
  CHECK(torch::allclose(ours.grad().to(torch::kDouble), exact.grad(), 2 * tolerance, 2 * tolerance));
}

TEST_CASE("going back through GELU twice is an error, not a wrong gradient", "[gelu]") {
  const auto x = torch::randn({8}).requires_grad_();
  const auto loss = metaformer::gelu(x).sum();
  loss.backward({}, /*retain_graph=*/true);
  CHECK_THROWS(loss.backward());
}

}  // namespace metaformer
