// The source of the CUDA kernel of the cross-entropy, compiled for the emulator or for a GPU, against the formula in
// float64. The bounds follow from the types: a softmax in float32, and one rounding of the gradient.

#include <bit>
#include <cmath>
#include <limits>

#include "cuda/step_case.h"
#include "support/catch.h"

namespace metaformer::test_cross_entropy_kernel {

using namespace step_cases;

namespace {

using cuda::RowElement;

constexpr auto elements = {RowElement::fp32, RowElement::bf16, RowElement::fp16};
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double roundoff = 0x1p-24;  // of float32

// Half a unit in the last of 24, 8 or 11 bits, relative to the smallest number with that unit.
double roundoff_of(RowElement element) {
  if (element == RowElement::fp32) return roundoff;
  return element == RowElement::bf16 ? 0x1p-8 : 0x1p-11;
}

struct Exact {
  double loss = 0, rows = 0, size = 0;  // rows: with a target; size: sum of the losses' sizes
  std::vector<double> gradient;
};

// The softmax's denominator of a row, relative to its largest logit.
struct Denominator {
  double greatest = -INFINITY, sum = 0, mean = 0;
  Denominator(const float* x, std::int64_t width) {
    for (std::int64_t v = 0; v < width; ++v) greatest = std::max(greatest, static_cast<double>(x[v]));
    for (std::int64_t v = 0; v < width; ++v) {
      sum += std::exp(static_cast<double>(x[v]) - greatest);
      mean += static_cast<double>(x[v]) / static_cast<double>(width);
    }
  }
};

Exact by_formula(const LossCase& c) {
  Exact exact;
  const auto logits = logits_of(c);
  const auto targets = targets_of(c);
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const auto target = targets[static_cast<std::size_t>(row)];
    const auto* x = logits.data() + row * c.width;
    const Denominator softmax(x, c.width);
    for (std::int64_t v = 0; v < c.width; ++v) {
      const double q = c.smoothing / static_cast<double>(c.width) + (v == target ? 1 - c.smoothing : 0);
      const double gradient = std::exp(static_cast<double>(x[v]) - softmax.greatest) / softmax.sum - q;
      exact.gradient.push_back(target < 0 ? 0 : gradient * static_cast<double>(c.factor));
    }
    if (target < 0) continue;
    const double loss = softmax.greatest + std::log(softmax.sum) - (1 - c.smoothing) * static_cast<double>(x[target]) -
                        c.smoothing * softmax.mean;
    exact.loss += loss;
    exact.size += std::fabs(loss);
    ++exact.rows;
  }
  return exact;
}

float loss_of(const LossResult& result) { return std::bit_cast<float>(result.loss); }

void check(const LossCase& c) {
  INFO("type " << static_cast<int>(c.element) << ", " << c.rows << " x " << c.width << " + " << c.padding
               << ", smoothing " << c.smoothing << ", spread " << c.spread << ", shifts " << c.shift << " and "
               << c.gradient_shift << (c.at_the_end ? ", at the end" : ""));
  const auto exact = by_formula(c);
  const auto result = run_loss(c);
  CHECK(result.is_alone);
  // A sum of up to eight rows in float32; the logarithm of a float32; with smoothing a mean of logits in float32.
  const double of_row = 16 * roundoff * (1 + c.smoothing * c.spread);
  CHECK(std::fabs(static_cast<double>(loss_of(result)) - exact.loss) <=
        of_row * exact.rows + 8 * roundoff * exact.size);
  REQUIRE(result.gradient.size() == exact.gradient.size());
  const double of_softmax = 16 * roundoff * static_cast<double>(std::fabs(c.factor)), smallest = 0x1p-25;  // of fp16
  double worst = 0;  // the error, relative to its bound
  for (std::size_t i = 0; i < exact.gradient.size(); ++i) {
    const double gradient = static_cast<double>(number_of(c.element, result.gradient[i]));
    const double bound = of_softmax + roundoff_of(c.element) * std::fabs(exact.gradient[i]) +
                         (c.element == RowElement::fp16 ? smallest : 0);
    const double error = std::fabs(gradient - exact.gradient[i]) / bound;
    worst = error > worst || std::isnan(error) ? error : worst;
  }
  CHECK(worst <= 1);
}

}  // namespace

TEST_CASE("the kernel of the cross-entropy agrees with the formula", "[cross_entropy]") {
  const auto element = GENERATE(values(elements));
  const std::int64_t width = GENERATE(1, 2, 31, 32, 33, 65, 384, 1000, 1023, 1024, 1025, 5001);
  const auto arithmetic = GENERATE(range(std::size_t{0}, arithmetics()));
  choose_arithmetic(arithmetic);
  for (const std::int64_t rows : {1, 7, 8, 9, 50})
    for (const double smoothing : {0.0, 0.1, 0.9})
      for (const double spread : {1.0, 300.0})
        if (width < 1000 || rows < 8)
          check({.element = element, .rows = rows, .width = width, .smoothing = smoothing, .spread = spread});
  choose_arithmetic(0);
}

TEST_CASE("the kernel of the cross-entropy takes every alignment and stride, and stays within its arrays",
          "[cross_entropy]") {
  const auto element = GENERATE(values(elements));
  const std::int64_t width = GENERATE(1, 3, 7, 8, 9, 16, 65, 100, 1033);
  for (const std::int64_t padding : {0, 1, 3, 8, 15}) {
    const LossCase usual{.element = element, .rows = 5, .width = width, .padding = padding, .smoothing = 0.1};
    for (std::size_t shift = 0; shift < 9; ++shift) {
      auto shifted = usual;
      shifted.shift = shift;
      shifted.gradient_shift = shift;
      check(shifted);
      shifted.gradient_shift = 1;
      check(shifted);
    }
    auto at_the_end = usual;
    at_the_end.at_the_end = true;
    check(at_the_end);
  }
}

TEST_CASE("the order of threads changes no bit of the loss and its gradient", "[cross_entropy]") {
  const std::int64_t width = GENERATE(65, 1100);
  const LossCase c{.element = RowElement::bf16, .rows = 20, .width = width, .smoothing = 0.1};
  const auto first = run_loss(c);
  for (std::uint64_t turn = 0; turn < 9; ++turn) {
    choose_schedule(turn);
    CHECK(run_loss(c) == first);
  }
  choose_schedule(0);
}

TEST_CASE("rows without a target have no loss and no gradient, whatever their logits", "[cross_entropy]") {
  const auto element = GENERATE(values(elements));
  const std::int64_t width = GENERATE(65, 1100);
  LossCase c{.element = element, .rows = 3, .width = width, .targets = {-1, -1, -7}};
  for (const float x : {1.0F, NAN, infinity}) {
    c.logits.assign(static_cast<std::size_t>(3 * width), x);
    const auto result = run_loss(c);
    CHECK(loss_of(result) == 0);
    for (const auto bits : result.gradient) CHECK(number_of(element, bits) == 0);
  }
  c.rows = 0;
  CHECK(loss_of(run_loss(c)) == 0);
}

TEST_CASE("infinite and NaN logits give the same loss in the kernel as in the formula", "[cross_entropy]") {
  const auto element = GENERATE(values(elements));
  const auto loss = [&](const std::vector<float>& logits, std::int64_t target) {
    return loss_of(
        run_loss({.element = element, .rows = 1, .width = std::ssize(logits), .targets = {target}, .logits = logits}));
  };
  CHECK(loss({1, -infinity, 1}, 0) == Approx(std::log(2.0)));
  CHECK(loss({-infinity, 1, 1}, 0) == infinity);
  CHECK(loss({-infinity, 1}, 1) == 0);
  CHECK(std::isnan(loss({1, NAN}, 0)));
  CHECK(std::isnan(loss({infinity, 1}, 0)));
  CHECK(std::isnan(loss({-infinity, -infinity}, 0)));
  // In lanes other than the first, and in groups of 16 bytes.
  for (const std::size_t place : {0, 5, 40, 63}) {
    std::vector<float> logits(64, 0.5F);
    logits[place] = -infinity;
    CHECK(loss(logits, 1) == Approx(std::log(63.0)));
    logits[place] = NAN;
    CHECK(std::isnan(loss(logits, 1)));
  }
}

TEST_CASE("the largest logit may be anywhere in a row", "[cross_entropy]") {
  const auto element = GENERATE(values(elements));
  const std::int64_t width = GENERATE(65, 1100, 3000);
  for (std::int64_t place = 0; place < width; place += width < 100 ? 1 : 23) {
    LossCase c{.element = element, .rows = 1, .width = width, .targets = {place}};
    c.logits.assign(static_cast<std::size_t>(width), -200);
    c.logits[static_cast<std::size_t>(place)] = 300;  // e^500 is infinite
    CHECK(loss_of(run_loss(c)) == 0);
    c.targets = {place == 0 ? 1 : 0};
    CHECK(loss_of(run_loss(c)) == 500);
  }
}

TEST_CASE("a target outside the vocabulary makes the loss and the row's gradient NaN", "[cross_entropy]") {
  const auto element = GENERATE(values(elements));
  for (const std::int64_t target : {std::int64_t{65}, std::int64_t{1} << 40}) {
    const auto result = run_loss({.element = element, .rows = 3, .width = 65, .targets = {4, target, 4}});
    CHECK(std::isnan(loss_of(result)));
    for (std::size_t i = 0; i < result.gradient.size(); ++i)
      CHECK(std::isnan(number_of(element, result.gradient[i])) == (i / 65 == 1));
  }
}

TEST_CASE("the gradient is computed again only for another factor", "[cross_entropy]") {
  const std::int64_t width = GENERATE(65, 1100);
  LossCase c{.rows = 4, .width = width, .has_loss = false, .factor = 0.5F};
  const auto expected = run_loss(c).gradient;
  c.computed = 0.25F;
  CHECK(run_loss(c).gradient == expected);
  c.computed = 0.5F;
  for (const auto bits : run_loss(c).gradient) CHECK(bits == 0xffffffff);  // nothing was written
  c.factor = c.computed = NAN;
  const auto gradient = run_loss(c).gradient;
  CHECK(std::isnan(number_of(c.element, gradient.front())));
  CHECK(gradient.front() != 0xffffffff);
}

TEST_CASE("the loss and the gradient do not depend on whether the other is needed", "[cross_entropy]") {
  const std::int64_t width = GENERATE(65, 1100);
  const LossCase both{.element = RowElement::bf16, .rows = 11, .width = width, .smoothing = 0.1};
  auto only_loss = both, only_gradient = both;
  only_loss.has_gradient = false;
  only_gradient.has_loss = false;
  CHECK(run_loss(only_loss).loss == run_loss(both).loss);
  CHECK(run_loss(only_gradient).gradient == run_loss(both).gradient);
  for (const auto bits : run_loss(only_loss).gradient) CHECK(bits == 0xffff);
}

TEST_CASE("the sum of many losses keeps the digits of float32", "[cross_entropy]") {
  check({.rows = 5001, .width = 3, .spread = 4});
  check({.element = RowElement::bf16, .rows = 300, .width = 1025, .spread = 1});
}

}  // namespace metaformer::test_cross_entropy_kernel
