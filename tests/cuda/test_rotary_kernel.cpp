// The source of the CUDA kernel of rotary positions, compiled for the emulator or for a GPU, against the formula in
// float64.

#include <cmath>

#include "cuda/layer_case.h"
#include "support/catch.h"

namespace metaformer::test_rotary_kernel {

using namespace layer_cases;
using step_cases::number_of;

namespace {

double roundoff_of(RowElement element) {
  return element == RowElement::fp32 ? 0x1p-24 : element == RowElement::bf16 ? 0x1p-8 : 0x1p-11;
}

void check_rotary(const RotaryCase& c) {
  INFO("element " << static_cast<int>(c.element) << ", " << c.texts << " x " << c.heads << " x " << c.tokens << " x "
                  << c.width << ", " << c.pairs << " pairs, shift " << c.place.shift << " gap " << c.gap
                  << (c.by_token ? " by token" : ""));
  const auto in = inputs_of(c);
  const auto result = run_rotary(c);
  CHECK(result.is_alone);
  const auto width = static_cast<std::size_t>(c.width), pairs = static_cast<std::size_t>(c.pairs);
  double worst = 0;
  for (std::size_t row = 0; row < c.rows(); ++row) {
    const auto token = row % static_cast<std::size_t>(c.tokens);
    const auto x = [&](std::size_t k) { return static_cast<double>(in.x[row * width + k]); };
    for (std::size_t k = 0; k < width; ++k) {
      double exact = x(k), size = 0;
      if (k < 2 * pairs) {
        const auto l = k % pairs;
        const double cosine = static_cast<double>(in.cosines[token * pairs + l]);
        const double sine = static_cast<double>(c.direction) * static_cast<double>(in.sines[token * pairs + l]);
        exact = k < pairs ? x(l) * cosine - x(l + pairs) * sine : x(l + pairs) * cosine + x(l) * sine;
        size = std::fabs(x(l)) + std::fabs(x(l + pairs));
      }
      const double given = static_cast<double>(number_of(c.element, result.y[row * width + k]));
      const double bound = k < 2 * pairs ? 2 * 0x1p-24 * size + roundoff_of(c.element) * std::fabs(exact) +
                                               (c.element == RowElement::fp16 ? 0x1p-25 : 0)
                                         : 0;
      const double error = std::fabs(given - exact) / (bound + 1e-37);
      if (!(error <= worst)) worst = error;
    }
  }
  CHECK(worst <= 1);
}

}  // namespace

TEST_CASE("the kernel of rotary positions rotates every width and number of pairs", "[rotary]") {
  const auto element = GENERATE(RowElement::fp32, RowElement::bf16, RowElement::fp16);
  const bool at_the_end = GENERATE(false, true);
  for (const auto& [width, pairs] :
       std::vector<std::pair<int, int>>{{1, 0}, {2, 1}, {3, 1}, {65, 32}, {64, 32}, {64, 16}, {384, 192}, {1000, 7}})
    for (const float direction : {1.0F, -1.0F})
      check_rotary({.element = element,
                    .texts = 2,
                    .heads = 3,
                    .tokens = 5,
                    .width = width,
                    .pairs = pairs,
                    .by_token = width % 2 == 0,
                    .direction = direction,
                    .place = {.at_the_end = at_the_end}});
}

TEST_CASE("the kernel of rotary positions takes every alignment, stride and size", "[rotary]") {
  const auto element = GENERATE(RowElement::fp32, RowElement::bf16);
  for (const std::size_t shift : {0, 1, 2, 3, 4})
    for (const std::int64_t gap : {0, 1, 4})
      check_rotary({.element = element,
                    .texts = 2,
                    .heads = 3,
                    .tokens = 4,
                    .width = 20,
                    .pairs = 8,
                    .by_token = true,
                    .gap = gap,
                    .place = {.shift = shift}});
  for (const std::int64_t tokens : {0, 1, 65, 300})
    for (const std::int64_t heads : {1, 6, 9})
      check_rotary({.element = element, .heads = heads, .tokens = tokens, .width = 8, .pairs = 4});
  check_rotary({.element = element, .texts = 0});
}

TEST_CASE("the kernel of rotary positions works in place, in any order of threads", "[rotary]") {
  RotaryCase c{.element = RowElement::bf16, .texts = 2, .heads = 3, .tokens = 70, .width = 20, .pairs = 8};
  const auto first = run_rotary(c);
  for (std::uint64_t turn = 0; turn < 9; ++turn) {
    choose_schedule(turn);
    c.in_place = turn % 2 == 1;
    CHECK(run_rotary(c) == first);
  }
  choose_schedule(0);
}

}  // namespace metaformer::test_rotary_kernel
