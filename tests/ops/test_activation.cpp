// Activations, gated products and their slopes by the program's kernels, against the definitions in float64.

#include <cmath>
#include <limits>

#include "ops/functional.h"
#include "support/any_block.h"

namespace metaformer::test_activation {

namespace {

struct Point {
  double y, slope;
};

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

Point exact(const GeluConfig&, double x) {
  const double distribution = 0.5 * std::erfc(-x * std::sqrt(0.5));
  return {x * distribution, distribution + x * std::exp(-x * x / 2) * 0.3989422804014327};
}

Point exact(const GeluTanhConfig&, double x) {
  const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)};
}

Point exact(const ReluConfig&, double x) { return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0}; }

Point exact(const SiluConfig& f, double x) {
  const double s = sigmoid(f.beta * x);
  return {x * s, s + f.beta * x * s * (1 - s)};
}

Point exact(const ReluSquaredConfig&, double x) { return {x > 0 ? x * x : 0, x > 0 ? 2 * x : 0}; }

Point exact(const ActivationConfig& f, double x) {
  return std::visit([&](const auto& options) { return exact(options, x); }, f);
}

torch::Tensor by_definition(const ActivationConfig& f, const torch::Tensor& x, double Point::*what) {
  auto y = x.to(torch::kDouble).clone().contiguous();
  auto* values = y.data_ptr<double>();
  for (std::int64_t i = 0; i < y.numel(); ++i) values[i] = exact(f, values[i]).*what;
  return y;
}

// The largest error, relative to the expected value or 0.1, whichever is larger.
double worst(const torch::Tensor& value, const torch::Tensor& expected) {
  return ((value.to(torch::kDouble) - expected).abs() / expected.abs().clamp_min(0.1)).max().item<double>();
}

struct Slopes {
  explicit Slopes(const ActivationConfig& f, const std::vector<float>& x) : y(x.size()), slope(x.size()) {
    activate(function_of(f), x.data(), y.data(), slope.data(), static_cast<std::int64_t>(x.size()));
  }
  std::vector<float> y, slope;
};

// Rounding to bfloat16 has a relative error of 2^-9.
double tolerance_of(torch::ScalarType type) { return type == torch::kBFloat16 ? 0.008 : 2e-6; }

// The library's operators are less accurate in the tails, and round intermediate results.
double library_tolerance_of(torch::ScalarType type) { return type == torch::kBFloat16 ? 0.016 : 1e-5; }

}  // namespace

TEST_CASE("activations and their slopes are correct over the whole range", "[activation]") {
  const auto f = any_activation();
  CAPTURE(kind_of(f));
  std::vector<float> x;
  for (double at = -14; at < 14; at += 1e-4) x.push_back(static_cast<float>(at));
  const Slopes computed(f, x);
  double worst_y = 0, worst_slope = 0, worst_tail = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto [y, slope] = exact(f, x[i]);
    worst_y = std::max(worst_y, std::abs(computed.y[i] - y) / std::max(std::abs(y), 0.1));
    worst_slope = std::max(worst_slope, std::abs(computed.slope[i] - slope) / std::max(std::abs(slope), 0.1));
    // Far below 0 the definition of gelu_tanh loses digits in 1 + tanh.
    if (std::abs(y) > 1e-30 && !is<GeluTanhConfig>(f))
      worst_tail = std::max(worst_tail, std::abs(computed.y[i] / y - 1));
  }
  CHECK(worst_y < 2e-6);
  CHECK(worst_slope < 2e-6);
  CHECK(worst_tail < 1e-5);  // float32 rounds the argument of the exponential
}

TEST_CASE("activations of infinities are their limits, and those of NaN are NaN", "[activation]") {
  const auto f = any_activation();
  CAPTURE(kind_of(f));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Slopes of(f, {infinity, -infinity, 0, 3e38f, -3e38f, std::nanf("")});
  const bool squares = is<ReluSquaredConfig>(f);
  const std::vector<float> limits = {infinity, 0, 0, squares ? infinity : 3e38f, 0};
  CHECK(std::vector(of.y.begin(), of.y.end() - 1) == limits);
  CHECK(std::isnan(of.y[5]));
  CHECK(std::vector(of.slope.begin(), of.slope.begin() + 3) ==
        std::vector<float>{squares ? infinity : 1, 0, static_cast<float>(exact(f, 0).slope)});
}

TEST_CASE("an activation writes exactly the given number of values", "[activation]") {
  const auto f = any_activation();
  for (std::size_t count : {0, 1, 15, 16, 17, 31, 40}) {
    std::vector<float> x(count, 1.5f), y(count + 1, 7.0f), slope(count + 1, 7.0f);
    activate(function_of(f), x.data(), y.data(), slope.data(), static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) REQUIRE(y[i] == y[0]);
    CHECK(y[count] == 7.0f);
    CHECK(slope[count] == 7.0f);
  }
}

TEST_CASE("values and gradients of an activation equal its definition", "[activation]") {
  const auto f = any_activation();
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16, torch::kDouble);
  CAPTURE(kind_of(f), type);
  const double tolerance = tolerance_of(type);
  auto x = (torch::randn({37, 53}) * 2).to(type).requires_grad_();
  const auto dy = torch::randn({37, 53}).to(type);
  const auto y = activate(f, x);
  y.backward(dy);
  CHECK(y.scalar_type() == type);
  CHECK(worst(y, by_definition(f, x.detach(), &Point::y)) < tolerance);
  CHECK(worst(x.grad(), by_definition(f, x.detach(), &Point::slope) * dy.to(torch::kDouble)) < 2 * tolerance);
  // Without gradients or in another layout the library computes.
  CHECK(worst(activate(f, x.detach()), by_definition(f, x.detach(), &Point::y)) < library_tolerance_of(type));
  CHECK(worst(activate(f, x.t()), by_definition(f, x.detach().t(), &Point::y)) < library_tolerance_of(type));
}

TEST_CASE("values and gradients of a gated product equal its definition", "[activation]") {
  const auto f = any_activation();
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16, torch::kDouble);
  const auto width = GENERATE(1, 8, 16, 24, 43);
  CAPTURE(kind_of(f), type, width);
  const double tolerance = tolerance_of(type);
  auto x = (torch::randn({3, 11, 2 * width}) * 2).to(type).requires_grad_();
  const auto dy = torch::randn({3, 11, width}).to(type);
  const auto y = gate(f, x);
  y.backward(dy);
  const auto wide = x.detach().to(torch::kDouble), wide_dy = dy.to(torch::kDouble);
  const auto gate_part = wide.narrow(-1, 0, width), up_part = wide.narrow(-1, width, width);
  const auto value = by_definition(f, gate_part, &Point::y), slope = by_definition(f, gate_part, &Point::slope);
  CHECK(y.scalar_type() == type);
  CHECK(worst(y, value * up_part) < 2 * tolerance);
  CHECK(worst(x.grad(), torch::cat({slope * up_part * wide_dy, value * wide_dy}, -1)) < 3 * tolerance);
  CHECK(worst(gate(f, x.detach()), value * up_part) < 2 * library_tolerance_of(type));
}

TEST_CASE("a gated product of no rows is empty", "[activation]") {
  const auto x = torch::zeros({0, 16}).requires_grad_();
  CHECK(gate(SiluConfig{}, x).sizes() == std::vector<std::int64_t>{0, 8});
}

TEST_CASE("a second backward pass through an activation is an error, not a wrong gradient", "[activation]") {
  const auto x = torch::randn({8}).requires_grad_();
  const auto loss = GENERATE(true, false) ? gate(SiluConfig{}, x).sum() : activate(GeluConfig{}, x).sum();
  loss.backward({}, /*retain_graph=*/true);
  CHECK_THROWS(loss.backward());
}

}  // namespace metaformer::test_activation
