// The metric kernels, their own source compiled for the emulator or for a GPU, against the definition in double: as
// accurate as an eager program in the same type, for every size, form and mask, under every order of execution.

#include "cuda/kernel_memory.h"
#include "cuda/metric_case.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

namespace {

using cuda::MetricElement;
using cuda::MetricForm;
// An eager program rounds more often than the kernels; the factor 2 is for the luck of the draw. No result can be
// nearer than the rounding of its type, nor than that of a sum in fp32, which is relative to the terms it adds.
double bound(const MetricCase& problem, const Values& eager, const Values& exact, const Values& terms = {}) {
  constexpr double fp32_roundoff = 0x1p-24;
  return 2 *
         std::max({distance(eager, exact), unit_roundoff(problem.element) * norm(exact), fp32_roundoff * norm(terms)});
}

void check_accuracy(const MetricCase& problem) {
  INFO(problem.str());
  static std::uint64_t turn = 0;
  choose_schedule(turn++);
  const auto exact = solve_exactly(problem), eager = solve_eagerly(problem);
  for (std::size_t arithmetic = 0; arithmetic < arithmetics(); ++arithmetic) {
    choose_arithmetic(arithmetic);
    INFO("arithmetic " << arithmetic);
    const auto kernel = run_kernels(problem);
    // An eager program adds each term rounded. Tensor cores cut terms, which the weights then show.
    const bool cuts = cuts_terms();
    const auto &t_terms = cuts ? exact.t_cut_terms : Values(), &dp_terms = cuts ? exact.dp_cut_terms : exact.dp_terms,
               &dkeys_terms = cuts ? exact.dkeys_cut_terms : exact.dkeys_terms,
               &log2_sum_terms = cuts ? exact.log2_sum_cut_terms : Values();
    CHECK(distance(kernel.t, exact.t) <= bound(problem, eager.t, exact.t, t_terms));
    CHECK(distance(kernel.dp, exact.dp) <= bound(problem, eager.dp, exact.dp, dp_terms));
    CHECK(distance(kernel.dkeys, exact.dkeys) <= bound(problem, eager.dkeys, exact.dkeys, dkeys_terms));
    CHECK(distance(kernel.dmetric, exact.dmetric) <= bound(problem, eager.dmetric, exact.dmetric, exact.dmetric_terms));
    // Of a distance it lacks what the softmax cancels.
    if (!problem.distance)
      CHECK(distance(kernel.log2_sum, exact.log2_sum) <=
            bound(problem, eager.log2_sum, exact.log2_sum, log2_sum_terms));
  }
  choose_arithmetic(0);
}

constexpr auto elements = {MetricElement::bf16, MetricElement::fp16, MetricElement::tf32, MetricElement::fp32};

}  // namespace

TEST_CASE("kernels are as accurate as eager products at every length", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.causal = GENERATE(true, false);
  problem.tokens = GENERATE(1, 2, 16, 17, 64, 65, 100, 129, 200);
  problem.width = problem.tokens % 2 == 0 ? 32 : 16;
  problem.batch = problem.tokens > 2 ? 1 : 32;  // an error is a norm over rows: of two it would be luck
  check_accuracy(problem);
}

TEST_CASE("kernels are as accurate as eager products over many tiles", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.distance = GENERATE(false, true);
  problem.tokens = GENERATE(257, 512);
  problem.causal = problem.tokens == 512;
  problem.width = problem.causal ? 8 : 32;
  problem.spread = problem.distance ? 0.5 : 1;
  problem.batch = 1;
  problem.heads = 1;
  check_accuracy(problem);
}

// All keys of a head are equal, so every tile has the same maximum, and sixteen times as many keys mean 4 more.
TEST_CASE("tiles of the same maximum leave what was summed before alone", "[kernels]") {
  MetricCase problem;
  problem.element = MetricElement::fp32;
  problem.form = MetricForm::identity;
  problem.equal_tokens = true;
  problem.tokens = 1024;
  problem.width = 8;
  problem.spread = 16;  // scores near 1,000, whose last bit stands for much
  problem.batch = 1;
  problem.heads = 16;
  const auto log2_sum = run_kernels(problem).log2_sum;
  for (std::size_t head = 0; head < 16; ++head) {
    const double few = log2_sum[1024 * head + 63], all = log2_sum[1024 * head + 1023];
    const double last_bit = std::nextafter(static_cast<float>(all), INFINITY) - static_cast<float>(all);
    CHECK(std::fabs(all - few - 4) <= last_bit);
  }
}

TEST_CASE("kernels are as accurate as eager products at every width", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.width = GENERATE(8, 16, 24, 32, 40, 48, 56, 64, 72, 96, 104, 128);
  problem.tokens = 70;
  problem.batch = 1;
  problem.causal = problem.width % 16 == 0;
  check_accuracy(problem);
}

TEST_CASE("kernels are as accurate as eager products for every form of a wide head", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(MetricElement::tf32, MetricElement::fp32);
  problem.form = GENERATE(MetricForm::dense, MetricForm::diagonal, MetricForm::identity);
  problem.width = GENERATE(88, 120);
  problem.tokens = 40;
  problem.batch = 1;
  check_accuracy(problem);
}

TEST_CASE("kernels are as accurate as eager products for every form, score and mask", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.form = GENERATE(MetricForm::dense, MetricForm::diagonal, MetricForm::identity);
  problem.distance = GENERATE(false, true);
  problem.mask = GENERATE(Mask::none, Mask::padding, Mask::blocks, Mask::nothing);
  problem.causal = GENERATE(true, false);
  problem.tokens = 90;
  problem.width = 24;
  problem.spread = problem.distance ? 0.5 : 1;
  check_accuracy(problem);
}

TEST_CASE("with dropout kernels are as accurate as eager products that drop the same weights", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.distance = GENERATE(false, true);
  problem.dropout = GENERATE(0.2, 0.9);
  problem.mask = problem.distance ? Mask::padding : Mask::none;
  problem.causal = !problem.distance;
  problem.tokens = 90;
  problem.width = 24;
  problem.spread = problem.distance ? 0.5 : 1;
  check_accuracy(problem);
}

TEST_CASE("kernels are as accurate as eager products for other keys than the queries, more or fewer", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.distance = GENERATE(false, true);
  problem.causal = GENERATE(false, true);
  const auto [tokens, keys] = GENERATE(table<int, int>({{70, 150}, {150, 70}, {1, 200}, {40, 1}, {64, 128}, {17, 90}}));
  problem.tokens = tokens;
  problem.keys = keys;
  problem.width = keys == 150 ? 40 : 16;
  problem.batch = tokens == 1 || keys == 1 ? 12 : 2;  // an error is a norm over rows: of a few it would be luck
  problem.spread = problem.distance ? 0.5 : 1;
  problem.dropout = keys == 90 ? 0.3 : 0;
  problem.mask = tokens == 64 ? Mask::padding : Mask::none;
  check_accuracy(problem);
}

TEST_CASE("kernels are as accurate as eager products for other keys with every form and mask", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(MetricElement::bf16, MetricElement::fp32);
  problem.form = GENERATE(MetricForm::dense, MetricForm::diagonal, MetricForm::identity);
  problem.distance = GENERATE(false, true);
  problem.mask = GENERATE(Mask::none, Mask::padding, Mask::blocks, Mask::nothing);
  problem.causal = GENERATE(true, false);
  problem.layout = problem.causal ? Layout::interleaved : Layout::unaligned;
  problem.tokens = 50;
  problem.keys = 90;
  problem.width = 24;
  problem.spread = problem.distance ? 0.5 : 1;
  check_accuracy(problem);
}

TEST_CASE("a form that is not symmetric is applied from its side", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.symmetric = false;
  problem.tokens = 75;
  problem.width = GENERATE(16, 40, 64);
  check_accuracy(problem);
}

TEST_CASE("any strides and any alignment of inputs give the same bits", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.tokens = 67;
  problem.width = 40;
  problem.layout = Layout::contiguous;
  const auto expected = run_kernels(problem);
  problem.layout = GENERATE(Layout::interleaved, Layout::unaligned);
  INFO(problem.str());
  CHECK(run_kernels(problem) == expected);
}

TEST_CASE("no order of execution changes a bit", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(MetricElement::bf16, MetricElement::fp32);
  problem.distance = GENERATE(false, true);
  problem.tokens = 150;
  problem.batch = 1;
  problem.heads = 1;
  choose_schedule(0);
  const auto expected = run_kernels(problem);
  for (std::uint64_t turn = 1; turn < 12; ++turn) {
    choose_schedule(turn);
    INFO(problem.str() << " turn " << turn);
    CHECK(run_kernels(problem) == expected);
  }
}

TEST_CASE("scores far from 0 overflow nothing", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.spread = 12;  // scores up to some hundreds
  problem.form = MetricForm::identity;
  problem.tokens = 80;
  problem.width = 16;
  const auto kernel = run_kernels(problem);
  for (const auto& values : {kernel.t, kernel.dp, kernel.log2_sum})
    for (const double value : values) REQUIRE(std::isfinite(value));
  // Scores are exact here but for the sum's rounding: q is p itself.
  const auto exact = solve_exactly(problem).t;
  CHECK(distance(kernel.t, exact) < 4 * unit_roundoff(problem.element) * norm(exact));
}

TEST_CASE("a NaN reaches what sees it and nothing of other heads and sequences", "[kernels]") {
  MetricCase problem;
  problem.element = GENERATE(values(elements));
  problem.tokens = 130;
  problem.width = 16;
  problem.causal = GENERATE(true, false);
  const auto clean = run_kernels(problem);
  const int token = 100, per_head = problem.tokens * problem.width;
  const auto kernel = run_kernels(problem, 2 * per_head + token * problem.width);  // second sequence, first head
  const auto at = [&](const Values& values, int head, int query) {
    return Values(values.begin() + head * per_head + query * problem.width,
                  values.begin() + head * per_head + (query + 1) * problem.width);
  };
  for (int head : {0, 1, 3}) {
    for (int i = 0; i < problem.tokens; ++i) {
      REQUIRE(at(kernel.t, head, i) == at(clean.t, head, i));
      REQUIRE(at(kernel.dp, head, i) == at(clean.dp, head, i));
    }
  }
  for (int i = problem.causal ? token : 0; i < problem.tokens; ++i) REQUIRE(std::isnan(at(kernel.t, 2, i)[0]));
}

TEST_CASE("empty inputs are left alone", "[kernels]") {
  MetricCase problem;
  problem.keys = GENERATE(0, 3);
  problem.batch = GENERATE(0, 2);
  problem.tokens = problem.batch == 0 ? 8 : 0;
  CHECK(run_kernels(problem).t.empty());
}

TEST_CASE("what the kernels cannot do is refused before a launch", "[kernels]") {
  cuda::MetricForward forward;
  auto& in = forward.in;
  in.batch = in.heads = in.queries.tokens = in.keys.tokens = 1;
  in.scale = 1;
  in.metric = &in;
  const auto refusal = [&] { return failure([&] { cuda::metric_forward(forward, nullptr); }).second; };
  in.width = GENERATE(100, 136, 4);
  CHECK_THAT(refusal(), ContainsSubstring("is not a multiple of 8 up to 128"));
  in.width = 16;
  in.metric = nullptr;
  CHECK_THAT(refusal(), ContainsSubstring("a metric goes with"));
  in.metric = &in;
  in.scale = 0;
  CHECK_THAT(refusal(), ContainsSubstring("scale"));
  in.scale = 1;
  auto& tokens = GENERATE(true, false) ? in.queries.tokens : in.keys.tokens;
  tokens = std::int64_t{1} << 40;
  CHECK_THAT(refusal(), ContainsSubstring("more than a grid holds"));
  tokens = 1;
  in.keys.tokens = 0;
  CHECK_THAT(refusal(), ContainsSubstring("no keys"));
}

}  // namespace metaformer
