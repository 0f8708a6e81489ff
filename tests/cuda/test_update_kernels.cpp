// The sources of the CUDA kernels of the gradients' norm and of Adam, compiled for the emulator or for a GPU, against
// formulas in float64. The bounds count the roundings of float32.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/step_case.h"
#include "support/catch.h"

namespace metaformer::test_update_kernels {

using namespace step_cases;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double roundoff = 0x1p-24;  // of float32

std::vector<float> numbers(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = 0.01F * static_cast<float>(i * 7919 % 1000) - 3.7F;
  return x;
}

double norm_of(const std::vector<float>& x) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

// A block adds about 1,000 squares one after another; their rounding errors mostly cancel.
void check_norm(const GradientCase& c) {
  INFO(c.gradients.size() << " gradients, shift " << c.shift << (c.at_the_end ? ", at the end" : ""));
  const double exact = norm_of(c.gradients);
  CHECK(std::fabs(static_cast<double>(run_gradient_norm(c).norm) - exact) <= 6 * roundoff * exact);
}

}  // namespace

TEST_CASE("the kernel of the gradients' norm agrees with the formula for every number and alignment", "[update]") {
  const std::size_t shift = GENERATE(0U, 1U, 2U, 3U, 4U);
  const bool at_the_end = GENERATE(false, true);
  std::vector<std::size_t> counts = {384, 512, 1000, 50'000};
  for (std::size_t i = 0; i < 20; ++i) counts.push_back(i);
  for (const auto groups : {1, 3, 4, 5, 12})
    for (const auto more : {-5, -4, -1, 0, 1, 4, 5}) counts.push_back(static_cast<std::size_t>(groups * 1024 + more));
  for (const auto count : counts) check_norm({.gradients = numbers(count), .shift = shift, .at_the_end = at_the_end});
}

TEST_CASE("the norm of many gradients keeps the digits of float32", "[update]") {
  // More than the blocks take at a time.
  auto gradients = numbers((std::size_t{1} << 23) + 7);
  check_norm({.gradients = gradients, .at_the_end = true});
  // Few large gradients among many small ones, as of different tensors.
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] *= i < 5000 ? 1e4F : 1e-4F;
  check_norm({.gradients = gradients});
  std::fill(gradients.begin(), gradients.end(), 0.1F);
  check_norm({.gradients = gradients});
}

TEST_CASE("the order of threads changes no bit of the norm", "[update]") {
  const GradientCase c{.gradients = numbers(30'011), .limit = 1, .divisor = 4};
  const auto first = run_gradient_norm(c);
  for (std::uint64_t turn = 0; turn < 9; ++turn) {
    choose_schedule(turn);
    const auto result = run_gradient_norm(c);
    CHECK(result.norm == first.norm);
    CHECK(result.factor == first.factor);
  }
  choose_schedule(0);
}

TEST_CASE("clipping limits the norm, and gradients that are not finite are found", "[update]") {
  GradientCase c{.gradients = numbers(5000), .limit = 2, .divisor = 1024};
  const double exact = norm_of(c.gradients) / 1024;
  c.limit = exact / 3;
  auto result = run_gradient_norm(c);
  CHECK(static_cast<double>(result.norm) == Approx(exact).epsilon(1e-6));
  CHECK(static_cast<double>(result.factor) == Approx(c.limit / (exact + 1e-6)).epsilon(1e-6));
  CHECK(result.found_inf == 0);
  c.limit = 2 * exact;
  CHECK(run_gradient_norm(c).factor == 1);
  c.limit = exact / 3;
  for (const float value : {NAN, infinity, -infinity, 1e30F}) {  // the square of the last one is infinite
    for (const std::size_t place : {0, 2500, 4999}) {
      c.gradients = numbers(5000);
      c.gradients[place] = value;
      result = run_gradient_norm(c);
      CHECK_FALSE(std::isfinite(result.norm));
      CHECK(result.found_inf == 1);
      CHECK(result.factor == 1);
    }
  }
  // Only the division overflows: the gradients are finite, but their norm is not.
  c.gradients = {1e10F};
  c.divisor = 1e-30F;
  result = run_gradient_norm(c);
  CHECK(result.norm == infinity);
  CHECK(result.found_inf == 0);
  CHECK(result.factor == 1);
}

TEST_CASE("gradients of zero have the norm zero, and results that are not needed are not stored", "[update]") {
  for (const std::size_t count : {0, 1, 5000}) {
    const auto result = run_gradient_norm({.gradients = std::vector<float>(count, 0), .limit = 1, .divisor = 2});
    CHECK(result.norm == 0);
    CHECK(result.factor == 1);
    CHECK(result.found_inf == 0);
  }
  const auto result = run_gradient_norm({.gradients = {3, 4}});
  CHECK(result.norm == 5);
  CHECK(result.factor == -1);
  CHECK(result.found_inf == -1);
}

namespace {

// A weight after a step, and bounds of the errors of its parts.
struct ExactWeight {
  double value, first_moment, second_moment;
  double value_bound, first_bound, second_bound;
};

ExactWeight step_of(const AdamCase& c, const RangeCase& range, double w, double m, double v, double g) {
  const double b1 = static_cast<double>(c.step.beta1), b2 = static_cast<double>(c.step.beta2);
  const double epsilon = static_cast<double>(c.step.epsilon), decay = static_cast<double>(range.weight_decay);
  const double rate = static_cast<double>(c.step.given_rate) * static_cast<double>(range.rate);
  const double t = static_cast<double>(c.steps) + 1;
  g *= (c.factor != 0 ? static_cast<double>(c.factor) : 1) / (c.divisor != 0 ? static_cast<double>(c.divisor) : 1);
  double decayed = w, g_bound = 3 * roundoff * std::fabs(g);
  if (c.step.decoupled) {
    decayed -= rate * decay * w;
  } else {
    g_bound += roundoff * (2 * std::fabs(decay * w) + std::fabs(g));
    g += decay * w;
  }
  ExactWeight exact{};
  exact.first_moment = b1 * m + (1 - b1) * g;
  exact.second_moment = b2 * v + (1 - b2) * g * g;
  exact.first_bound = 2 * roundoff * (std::fabs(m) + std::fabs(g)) + (1 - b1) * g_bound;
  exact.second_bound =
      2 * roundoff * exact.second_moment + (1 - b2) * 2 * std::fabs(g) * (g_bound + roundoff * std::fabs(g));
  const double root = std::sqrt(exact.second_moment) / std::sqrt(1 - std::pow(b2, t)) + epsilon;
  const double step_size = rate / (1 - std::pow(b1, t)), update = step_size * exact.first_moment / root;
  exact.value = decayed - update;
  // The roundings of the update's factors, and a relative error of half that of the second moment in its root.
  const double of_root = exact.second_moment > 0 ? exact.second_bound / exact.second_moment / 2 : 0;
  exact.value_bound = 4 * roundoff * std::fabs(w) + step_size / root * exact.first_bound +
                      (12 * roundoff + of_root) * std::fabs(update);
  return exact;
}

// The largest error of numbers, relative to its bound.
struct Worst {
  double value = 0;
  void add(float given, double exact, double bound) {
    const double error = std::fabs(static_cast<double>(given) - exact) / (bound + 1e-45);
    if (!(error <= value)) value = error;
  }
};

std::vector<std::uint32_t> copies_of(const AdamCase& c, const std::vector<float>& values) {
  std::vector<std::uint32_t> copies;
  for (const float value : values) copies.push_back(stored(c.step.copy_element, value));
  return copies;
}

void check_adam(const AdamCase& c) {
  INFO(c.ranges.size() << " ranges, step " << c.steps + 1 << (c.step.decoupled ? ", decoupled" : ""));
  const auto result = run_adam(c);
  CHECK(result.is_alone);
  CHECK(result.steps == c.steps + 1);
  Worst values, firsts, seconds;
  for (std::size_t r = 0; r < c.ranges.size(); ++r) {
    const auto &before = result.before[r], &after = result.after[r];
    for (std::size_t i = 0; i < c.ranges[r].count; ++i) {
      const auto number = [&](const std::vector<float>& x) { return static_cast<double>(x[i]); };
      const auto exact = step_of(c, c.ranges[r], number(before.values), number(before.first_moments),
                                 number(before.second_moments), number(before.gradients));
      values.add(after.values[i], exact.value, exact.value_bound);
      firsts.add(after.first_moments[i], exact.first_moment, exact.first_bound);
      seconds.add(after.second_moments[i], exact.second_moment, exact.second_bound);
    }
    CHECK(after.gradients == before.gradients);
    CHECK(after.copies == (c.copies ? copies_of(c, after.values) : before.copies));
  }
  CHECK(values.value <= 1);
  CHECK(firsts.value <= 1);
  CHECK(seconds.value <= 1);
}

}  // namespace

TEST_CASE("the kernel of Adam agrees with the formula for every number of weights and alignment", "[update]") {
  const bool copies = GENERATE(false, true);
  const auto element = GENERATE(cuda::RowElement::bf16, cuda::RowElement::fp16);
  for (const std::size_t shift : {0, 1, 2, 3}) {
    for (const bool at_the_end : {false, true}) {
      AdamCase c{.steps = 2, .factor = 0.7F, .copies = copies};
      c.step.copy_element = element;
      std::vector<std::size_t> counts = {384, 512, 1000, 2047, 2048, 2049, 2051, 2052, 5000};
      for (std::size_t i = 0; i < 9; ++i) counts.push_back(i);
      for (const auto count : counts)
        c.ranges.push_back({.count = count, .shift = shift, .at_the_end = at_the_end, .weight_decay = 0.1F});
      check_adam(c);
    }
  }
}

TEST_CASE("the arrays of a range need not have the same alignment", "[update]") {
  for (int other = 0; other < 5; ++other)
    check_adam({.ranges = {{.count = 131, .other = other}, {.count = 3000, .shift = 3, .other = other}},
                .steps = 1,
                .copies = true});
}

TEST_CASE("every range has its own decay and rate, however many there are", "[update]") {
  const std::size_t count = GENERATE(0U, 1U, 2U, 31U, 32U, 33U, 70U);
  AdamCase c{.steps = 9};
  c.step.decoupled = GENERATE(true, false);
  for (std::size_t i = 0; i < count; ++i)
    c.ranges.push_back({.count = 16 + i * 131 % 2500,
                        .weight_decay = i % 3 == 0 ? 0.0F : 0.02F * static_cast<float>(i),
                        .rate = 1 / static_cast<float>(1 + i % 5)});
  check_adam(c);
}

TEST_CASE("ranges may be empty", "[update]") {
  check_adam({.ranges = {{}, {}}});
  check_adam({.ranges = {{}, {.count = 5}, {}, {.count = 2048}, {}}});
}

TEST_CASE("the moments are corrected for their start at zero in every step", "[update]") {
  AdamCase c{.ranges = {{.count = 300, .weight_decay = 0.1F}}};
  c.steps = GENERATE(0.0F, 1.0F, 2.0F, 62.0F, 63.0F, 999.0F, 123456.0F, 16777214.0F);
  c.step.beta1 = GENERATE(0.9F, 0.0F);
  c.step.beta2 = GENERATE(0.99F, 0.999F, 0.9999F);
  check_adam(c);
}

TEST_CASE("gradients are scaled and divided, and the rate may lie in memory", "[update]") {
  AdamCase c{.ranges = {{.count = 300, .weight_decay = 0.1F}}, .steps = 4};
  c.step.decoupled = GENERATE(true, false);
  c.step.epsilon = GENERATE(1e-8F, 1e-3F);
  check_adam(c);
  c.factor = 0.01F;
  check_adam(c);
  c.divisor = 1024;
  c.found_inf = 0;
  check_adam(c);
  const auto with_number = run_adam(c);
  c.rate_in_memory = true;
  const auto with_memory = run_adam(c);
  CHECK(with_memory.after[0].values == with_number.after[0].values);
}

TEST_CASE("a step whose gradients were found not to be finite changes nothing", "[update]") {
  const float first = GENERATE(1.0F, NAN, infinity);
  const AdamCase c{.ranges = {{.count = 3000, .weight_decay = 0.1F}, {.count = 5}},
                   .steps = 4,
                   .divisor = 1024,
                   .found_inf = 1,
                   .first_gradient = first};
  const auto result = run_adam(c);
  CHECK(result.steps == 4);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(result.after[r].values == result.before[r].values);
    CHECK(result.after[r].first_moments == result.before[r].first_moments);
    CHECK(result.after[r].second_moments == result.before[r].second_moments);
    CHECK(result.after[r].copies == result.before[r].copies);
  }
}

TEST_CASE("copies of weights in float32 are refused", "[update]") {
  const cuda::AdamStep step{.copy_element = cuda::RowElement::fp32};
  CHECK_THROWS_WITH(cuda::adam_step(step, nullptr, 0, nullptr), Mentions("fp32"));
}

TEST_CASE("copies of weights are rounded to the nearest, also beyond the largest number of fp16", "[update]") {
  AdamCase c{.ranges = {{.count = 2048}, {.count = 7, .shift = 1}}, .copies = true};
  c.step.copy_element = GENERATE(cuda::RowElement::bf16, cuda::RowElement::fp16);
  for (const float rate : {1e-6F, 1.0F, 1e4F, 1e6F, 1e38F}) {
    c.step.given_rate = rate;
    const auto result = run_adam(c);
    for (const auto& range : result.after) CHECK(range.copies == copies_of(c, range.values));
  }
}

TEST_CASE("a gradient that is NaN makes only its own weight NaN", "[update]") {
  const AdamCase c{.ranges = {{.count = 300}, {.count = 5}}, .factor = 1, .first_gradient = NAN};
  const auto result = run_adam(c);
  for (const auto& range : result.after)
    for (std::size_t i = 0; i < range.values.size(); ++i) CHECK(std::isnan(range.values[i]) == (i == 0));
}

TEST_CASE("the order of threads changes no bit of the weights", "[update]") {
  const AdamCase c{
      .ranges = {{.count = 4000, .weight_decay = 0.1F}, {.count = 131}}, .steps = 1, .factor = 0.5F, .copies = true};
  const auto first = run_adam(c);
  for (std::uint64_t turn = 0; turn < 9; ++turn) {
    choose_schedule(turn);
    const auto result = run_adam(c);
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK(result.after[r].values == first.after[r].values);
      CHECK(result.after[r].second_moments == first.after[r].second_moments);
      CHECK(result.after[r].copies == first.after[r].copies);
    }
  }
  choose_schedule(0);
}

}  // namespace metaformer::test_update_kernels
