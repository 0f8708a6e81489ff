// The source of the CUDA kernels of activations, compiled for the emulator or for a GPU, against the definitions in
// float64.

#include <cmath>
#include <limits>

#include "cuda/layer_case.h"
#include "support/catch.h"

namespace metaformer::test_activation_kernel {

using namespace layer_cases;
using step_cases::number_of;

namespace {

using Kind = ActivationFunction::Kind;

constexpr double float_roundoff = 0x1p-24;
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Point {
  double value, slope;
};

Point exact(ActivationFunction f, double x) {
  const double beta = f.kind == Kind::silu ? static_cast<double>(f.beta) : 1;
  switch (f.kind) {
    case Kind::gelu: {
      const double distribution = 0.5 * std::erfc(-x * std::sqrt(0.5));
      return {x * distribution, distribution + x * std::exp(-x * x / 2) * 0.3989422804014327};
    }
    case Kind::gelu_tanh: {
      const double c = 2 * std::sqrt(2 / M_PI), s = 1 / (1 + std::exp(-c * (x + 0.044715 * x * x * x)));
      return {x * s, s + x * s * (1 - s) * c * (1 + 3 * 0.044715 * x * x)};
    }
    case Kind::relu:
      return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
    case Kind::silu: {
      const double s = 1 / (1 + std::exp(-beta * x));
      return {x * s, s + beta * x * s * (1 - s)};
    }
    case Kind::relu_squared:
      return {x > 0 ? x * x : 0, x > 0 ? 2 * x : 0};
  }
  return {};
}

double roundoff_of(RowElement element) {
  return element == RowElement::fp32 ? float_roundoff : element == RowElement::bf16 ? 0x1p-8 : 0x1p-11;
}

// The largest error of numbers, relative to its bound.
struct Worst {
  RowElement element = RowElement::fp32;
  double value = 0;

  // `bound`: of the error before the number is stored.
  void add(double given, double exact, double bound) {
    const double smallest = element == RowElement::fp16 ? 0x1p-25 : 1e-37;
    const double of_storing = roundoff_of(element) * (std::fabs(exact) + bound) + smallest;
    const double error = std::fabs(given - exact) / (bound + of_storing);
    if (!(error <= value)) value = error;
  }
};

// Of values and slopes of a number: that of cpu/activation.h, and the rounding of x + bias.
double bound_of(double exact, double rise, double u) {
  return 2e-6 * std::max(std::fabs(exact), 0.1) + float_roundoff * std::fabs(rise * u);
}

void check_activation(const ActivationCase& c) {
  INFO("kind " << static_cast<int>(c.function.kind) << (c.gated ? " gated" : "") << " element "
               << static_cast<int>(c.element) << ", " << c.rows << " x " << c.width << " shift " << c.place.shift
               << (c.place.at_the_end ? " at the end" : "") << (c.has_bias ? "" : " without bias"));
  const auto in = inputs_of(c);
  const auto result = run_activation(c);
  CHECK(result.is_alone);
  const auto wide = c.x_width(), width = static_cast<std::size_t>(c.width);
  Worst y{.element = c.element}, dx{.element = c.element}, dbias;
  std::vector<double> sums(wide), sizes(wide), bounds(wide);
  const auto add_dx = [&](std::size_t row, std::size_t column, double number, double bound) {
    dx.add(static_cast<double>(number_of(c.element, result.dx[row * wide + column])), number, bound);
    sums[column] += number;
    sizes[column] += std::fabs(number);
    bounds[column] += bound;
  };
  for (std::size_t row = 0; row < static_cast<std::size_t>(c.rows); ++row) {
    for (std::size_t i = 0; i < width; ++i) {
      const auto sum_at = [&](std::size_t column) {
        return static_cast<double>(in.x[row * wide + column]) + static_cast<double>(in.bias[column]);
      };
      const double u = sum_at(i), factor = c.gated ? sum_at(i + width) : 1;
      const double dy = static_cast<double>(in.dy[row * width + i]);
      const auto f = exact(c.function, u);
      const double value_bound = bound_of(f.value, f.slope, u);
      const double slope_bound = bound_of(f.slope, 2 + std::fabs(static_cast<double>(c.function.beta)), u);
      const double rounded = 3 * float_roundoff;
      y.add(static_cast<double>(number_of(c.element, result.y[row * width + i])), f.value * factor,
            std::fabs(factor) * (value_bound + rounded * std::fabs(f.value)));
      add_dx(row, i, dy * f.slope * factor, std::fabs(dy * factor) * (slope_bound + rounded * std::fabs(f.slope)));
      if (c.gated) add_dx(row, i + width, dy * f.value, std::fabs(dy) * (value_bound + rounded * std::fabs(f.value)));
    }
  }
  for (std::size_t i = 0; i < wide; ++i)
    dbias.add(static_cast<double>(result.dbias[i]), sums[i], bounds[i] + 40 * float_roundoff * sizes[i]);
  CHECK(y.value <= 1);
  CHECK(dx.value <= 1);
  CHECK(dbias.value <= 1);
}

const std::vector<ActivationFunction> functions = {{Kind::gelu}, {Kind::gelu_tanh},    {Kind::relu},
                                                   {Kind::silu}, {Kind::silu, 1.702F}, {Kind::relu_squared}};

RowElement any_element() { return GENERATE(RowElement::fp32, RowElement::bf16, RowElement::fp16); }

}  // namespace

TEST_CASE("the kernels of activations agree with their definitions for every function, type and size", "[activation]") {
  const auto element = any_element();
  const bool gated = GENERATE(false, true), at_the_end = GENERATE(false, true);
  for (std::size_t number = 0; number < arithmetics(); ++number) {
    choose_arithmetic(number);
    for (const auto& function : functions) {
      ActivationCase c{.function = function, .gated = gated, .element = element, .place = {.at_the_end = at_the_end}};
      for (const int width : {1, 65, 384, 1000}) {
        c.width = width;
        c.rows = width == 65 ? 37 : 3;
        check_activation(c);
      }
    }
  }
  choose_arithmetic(0);
}

TEST_CASE("the kernels of activations take every alignment and width", "[activation]") {
  const auto element = any_element();
  const bool gated = GENERATE(false, true);
  for (const std::size_t shift : {0, 1, 2, 3, 4})
    for (const int width : {2, 3, 4, 8, 127, 128, 129, 132, 256})
      check_activation({.function = {Kind::gelu},
                        .gated = gated,
                        .element = element,
                        .rows = 3,
                        .width = width,
                        .has_bias = width != 8,
                        .place = {.shift = shift}});
}

TEST_CASE("the gradient of a bias is the sum over any number of rows", "[activation]") {
  const bool gated = GENERATE(false, true);
  for (const std::int64_t rows : {0, 1, 7, 8, 9, 127, 128, 129, 257, 1030})
    check_activation({.function = {Kind::silu}, .gated = gated, .rows = rows, .width = 6});
  // More parts than are kept: a block then has several rounds of rows.
  check_activation({.function = {Kind::relu}, .gated = gated, .rows = 66'000, .width = 1});
}

TEST_CASE("gradients of activations that are not needed are not stored", "[activation]") {
  ActivationCase c{.function = {Kind::gelu}, .gated = true, .rows = 9, .width = 20};
  const auto all = run_activation(c);
  c.has_dx = false;
  const auto of_bias = run_activation(c);
  CHECK(of_bias.dbias == all.dbias);
  for (const auto bits : of_bias.dx) CHECK(bits == 0xffffffffU);
  c.has_dx = true;
  c.has_dbias = false;
  CHECK(run_activation(c).dx == all.dx);
}

TEST_CASE("the kernels' activations of infinities are their limits, and those of NaN are NaN", "[activation]") {
  for (const auto& function : functions) {
    INFO(static_cast<int>(function.kind));
    const std::vector<float> x = {infinity, -infinity, 0, 3e38F, -3e38F, NAN};
    const auto result = run_activation({.function = function, .width = 6, .has_bias = false, .x = x});
    const bool squares = function.kind == Kind::relu_squared;
    const std::vector<float> limits = {infinity, 0, 0, squares ? infinity : 3e38F, 0};
    for (std::size_t i = 0; i < limits.size(); ++i) {
      CHECK(number_of(RowElement::fp32, result.y[i]) == limits[i]);
      CHECK_FALSE(std::isnan(number_of(RowElement::fp32, result.dx[i])));
    }
    CHECK(std::isnan(number_of(RowElement::fp32, result.y[5])));
  }
}

TEST_CASE("the order of threads changes no bit of an activation", "[activation]") {
  for (const bool gated : {false, true}) {
    const ActivationCase c{
        .function = {Kind::gelu}, .gated = gated, .element = RowElement::bf16, .rows = 300, .width = 132};
    const auto first = run_activation(c);
    for (std::uint64_t turn = 0; turn < 9; ++turn) {
      choose_schedule(turn);
      CHECK(run_activation(c) == first);
    }
    choose_schedule(0);
  }
}

}  // namespace metaformer::test_activation_kernel
