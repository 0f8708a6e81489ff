// The source of the kernels around the library's attention, compiled for the emulator or for a GPU, against the
// definition in double: as accurate as an eager program in the same type, under every order of execution.

#include "cuda/kernel_memory.h"
#include "cuda/projection_case.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

namespace {

using cuda::MetricElement;
using cuda::MetricForm;

constexpr auto elements = {MetricElement::bf16, MetricElement::fp16};
constexpr auto forms = {MetricForm::dense, MetricForm::diagonal, MetricForm::identity};

// The error is at most twice that of an eager program or the rounding of the type.
void check_accuracy(const ProjectionCase& problem) {
  INFO(problem.str());
  static std::uint64_t turn = 0;
  choose_schedule(turn++);
  const auto exact = project_exactly(problem), eager = project_eagerly(problem);
  for (std::size_t arithmetic = 0; arithmetic < arithmetics(); ++arithmetic) {
    choose_arithmetic(arithmetic);
    INFO("arithmetic " << arithmetic);
    const auto kernel = run_projection(problem);
    CHECK(kernel.dvalue == exact.dvalue);
    for (const auto field : {&ProjectionResult::p, &ProjectionResult::q, &ProjectionResult::dx,
                             &ProjectionResult::dmetric, &ProjectionResult::dgain}) {
      const auto &ours = kernel.*field, &truth = exact.*field;
      REQUIRE(ours.size() == truth.size());
      const double nearest = unit_roundoff(problem.element) * norm(truth);
      CHECK(distance(ours, truth) <= 2 * std::max(distance(eager.*field, truth), nearest));
    }
  }
  choose_arithmetic(0);
}

}  // namespace

TEST_CASE("the projection kernels are as accurate as eager operators at every length", "[kernels]") {
  const int tokens = GENERATE(1, 15, 16, 17, 64, 65, 130, 200);
  const bool own_values = GENERATE(true, false);
  check_accuracy({.element = GENERATE(values(elements)),
                  .normalised = own_values || tokens % 2 == 0,
                  .own_values = own_values,
                  .batch = tokens > 2 ? 1 : 24,  // the error of few rows would be due to chance
                  .tokens = tokens,
                  .width = tokens % 2 == 0 ? 32 : 16});
}

TEST_CASE("the projection kernels are as accurate as eager operators at every width", "[kernels]") {
  const int width = GENERATE(8, 16, 24, 32, 40, 48, 56, 64, 72, 88, 96, 104, 128);
  check_accuracy({.element = GENERATE(values(elements)),
                  .normalised = GENERATE(true, false),
                  .own_values = width % 16 == 0,
                  .batch = 1,
                  .tokens = 70,
                  .width = width});
}

TEST_CASE("the projection kernels are as accurate as eager operators for every form, norm and kind of values",
          "[kernels]") {
  const bool normalised = GENERATE(true, false);
  check_accuracy({.element = GENERATE(values(elements)),
                  .form = GENERATE(values(forms)),
                  .normalised = normalised,
                  .has_gain = normalised && GENERATE(true, false),
                  .own_values = GENERATE(true, false),
                  .layout = normalised ? Layout::interleaved : Layout::contiguous,
                  .tokens = 75,
                  .width = GENERATE(24, 104),
                  .spread = normalised ? 0.01 : 1});
}

TEST_CASE("however the tiles of tokens are divided, the projection kernels are as accurate as eager operators",
          "[kernels]") {
  check_accuracy(
      {.element = GENERATE(values(elements)), .batch = 3, .tokens = 100, .width = 16, .parts = GENERATE(1, 2, 4, 6)});
}

TEST_CASE("neither order of execution nor strides change a bit of the projection kernels", "[kernels]") {
  ProjectionCase problem = {.element = GENERATE(values(elements)),
                            .own_values = GENERATE(true, false),
                            .layout = Layout::contiguous,
                            .batch = 3,
                            .tokens = 70,
                            .width = GENERATE(40, 104),
                            .parts = 2};
  choose_schedule(0);
  const auto expected = run_projection(problem);
  problem.layout = Layout::interleaved;
  for (std::uint64_t turn = 1; turn < 8; ++turn) {
    choose_schedule(turn);
    INFO(problem.str() << " turn " << turn);
    CHECK(run_projection(problem) == expected);
  }
}

TEST_CASE("a token with a projection of 0 has a p of 0 and finite gradients", "[kernels]") {
  const auto result = run_projection({.tokens = 20, .spread = 0});
  for (const double value : result.p) REQUIRE(value == 0);
  for (const double value : result.dx) REQUIRE(std::isfinite(value));
}

TEST_CASE("empty inputs of the projection kernels give empty results", "[kernels]") {
  const int batch = GENERATE(0, 2);
  CHECK(run_projection({.batch = batch, .tokens = batch == 0 ? 8 : 0}).dx.empty());
}

TEST_CASE("unsupported inputs of the projection kernels are refused before the launch of a kernel", "[kernels]") {
  alignas(16) static std::uint16_t memory[8];
  cuda::MetricProjection forward;
  auto& in = forward.in;
  in.batch = in.heads = in.queries.tokens = 1;
  in.width = 16;
  in.form = MetricForm::identity;
  in.queries.p = memory;
  const auto refusal = [&] { return failure([&] { cuda::metric_project(forward, nullptr); }).second; };
  SECTION("types") {
    in.element = GENERATE(MetricElement::fp32, MetricElement::tf32);
    CHECK_THAT(refusal(), Mentions("bf16|fp16"));
  }
  SECTION("widths") {
    in.width = GENERATE(100, 136, 4);
    CHECK_THAT(refusal(), Mentions("multiple of 8|128"));
  }
  SECTION("rows that are not aligned") {
    in.queries.p = memory + 1;
    CHECK_THAT(refusal(), ContainsSubstring("aligned"));
    in.queries.p = memory;
    in.queries.p_strides.token = 20;
    CHECK_THAT(refusal(), ContainsSubstring("aligned"));
  }
  SECTION("sizes") {
    in.queries.tokens = std::int64_t{1} << 40;
    CHECK_THAT(refusal(), ContainsSubstring("a grid holds"));
  }
  SECTION("results without room") {
    forward.normalised = true;
    CHECK_THAT(refusal(), ContainsSubstring("epsilon"));
    forward.epsilon = 1e-6F;
    CHECK_THAT(refusal(), ContainsSubstring("room"));
  }
  SECTION("a metric that is not there") {
    in.form = MetricForm::dense;
    CHECK_THAT(refusal(), ContainsSubstring("a metric goes with"));
  }
  SECTION("more parts than tiles") {
    const auto message =
        failure([&] { cuda::metric_project_backward({.forward = forward, .parts = 2}, nullptr); }).second;
    CHECK_THAT(message, ContainsSubstring("parts"));
  }
}

}  // namespace metaformer
