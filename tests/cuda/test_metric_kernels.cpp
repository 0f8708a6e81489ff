// The source of the metric kernels, compiled for the emulator or for a GPU, against the definition in double: as
// accurate as an eager program in the same type, for every size, form and mask, under every order of execution.

#include "cuda/devices.h"
#include "cuda/kernel_memory.h"
#include "cuda/metric_case.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/pairs.h"

namespace metaformer {

namespace {

using cuda::MetricElement;
using cuda::MetricForm;

// An eager program rounds more often than the kernels; the factor 2 allows for chance. No error can be smaller than the
// rounding of the type or of a sum in fp32, which is relative to its terms.
double bound(const MetricCase& problem, const Values& eager, const Values& exact, const Values& terms = {}) {
  constexpr double fp32_roundoff = 0x1p-24;
  return 2 *
         std::max({distance(eager, exact), unit_roundoff(problem.element) * norm(exact), fp32_roundoff * norm(terms)});
}

// Checks with the first `ways` arithmetics.
void check_accuracy(const MetricCase& problem, std::size_t ways = arithmetics()) {
  INFO(problem.str());
  static std::uint64_t turn = 0;
  choose_schedule(turn++);
  const auto exact = solve_exactly(problem), eager = solve_eagerly(problem);
  for (std::size_t arithmetic = 0; arithmetic < ways; ++arithmetic) {
    choose_arithmetic(arithmetic);
    INFO("arithmetic " << arithmetic);
    const auto kernel = run_kernels(problem);
    const auto check = [&](const char* name, Values MetricResult::*field, const Values& terms) {
      INFO(name);
      CHECK(distance(kernel.*field, exact.*field) <= bound(problem, eager.*field, exact.*field, terms));
    };
    // An eager program rounds each term. Tensor cores cut terms, with an error of the weights.
    const bool cuts = cuts_terms();
    check("t", &MetricResult::t, cuts ? exact.t_cut_terms : Values());
    check("dp", &MetricResult::dp, cuts ? exact.dp_cut_terms : exact.dp_terms);
    check("dkeys", &MetricResult::dkeys, cuts ? exact.dkeys_cut_terms : exact.dkeys_terms);
    check("dvalues", &MetricResult::dvalues, cuts ? exact.dvalues_cut_terms : exact.dvalues_terms);
    check("dmetric", &MetricResult::dmetric, exact.dmetric_terms);
    // For a distance the kernels' log2_sum lacks a term that the softmax cancels.
    if (!problem.distance) check("log2_sum", &MetricResult::log2_sum, cuts ? exact.log2_sum_cut_terms : Values());
  }
  choose_arithmetic(0);
}

constexpr auto elements = {MetricElement::bf16, MetricElement::fp16, MetricElement::tf32, MetricElement::fp32};
constexpr auto forms = {MetricForm::dense, MetricForm::diagonal, MetricForm::identity};
constexpr auto masks = {Mask::none, Mask::padding, Mask::blocks, Mask::nothing};

// One of the pairwise combinations of options with these numbers of values; the test case runs once with each.
Choice any_choice(const Choice& counts) {
  const auto choices = pairwise_choices(counts);
  return choices[GENERATE_COPY(range(std::size_t{0}, choices.size()))];
}

constexpr auto narrow_elements = {MetricElement::bf16, MetricElement::fp16};
constexpr auto half_and_full = {MetricElement::bf16, MetricElement::fp32};

template <class Value>
const Value& number(std::size_t i, const std::initializer_list<Value>& all) {
  return all.begin()[i];
}

}  // namespace

TEST_CASE("kernels are as accurate as eager products at every length", "[kernels]") {
  const int tokens = GENERATE(1, 2, 16, 17, 64, 65, 100, 129, 200);
  check_accuracy({.element = GENERATE(values(elements)),
                  .causal = GENERATE(true, false),
                  .batch = tokens > 2 ? 1 : 32,  // the error of few rows would be due to chance
                  .tokens = tokens,
                  .width = tokens % 2 == 0 ? 32 : 16});
}

TEST_CASE("kernels are as accurate as eager products over many tiles", "[kernels]") {
  const bool distance = GENERATE(false, true), causal = GENERATE(false, true);
  check_accuracy({.element = GENERATE(values(elements)),
                  .distance = distance,
                  .causal = causal,
                  .batch = 1,
                  .heads = 1,
                  .tokens = causal ? 512 : 257,
                  .width = causal ? 8 : 32,
                  .spread = distance ? 0.5 : 1});
}

// All keys of a head are equal, so every tile has the same maximum, and 16 times as many keys add 4 to log2_sum.
TEST_CASE("tiles with the same maximum keep the earlier sums", "[kernels]") {
  const auto log2_sum = run_kernels({.element = MetricElement::fp32,
                                     .form = MetricForm::identity,
                                     .batch = 1,
                                     .heads = 16,
                                     .tokens = 1024,
                                     .width = 8,
                                     .spread = 16,  // scores near 1,000, whose last bit is large
                                     .equal_tokens = true})
                            .log2_sum;
  for (std::size_t head = 0; head < 16; ++head) {
    const double few = log2_sum[1024 * head + 63], all = log2_sum[1024 * head + 1023];
    const double last_bit = std::nextafter(static_cast<float>(all), INFINITY) - static_cast<float>(all);
    CHECK(std::fabs(all - few - 4) <= last_bit);
  }
}

TEST_CASE("kernels are as accurate as eager products at every width", "[kernels]") {
  const int width = GENERATE(8, 16, 24, 32, 40, 48, 56, 64, 72, 96, 104, 128);
  check_accuracy(
      {.element = GENERATE(values(elements)), .causal = width % 16 == 0, .batch = 1, .tokens = 70, .width = width});
}

TEST_CASE("kernels are as accurate as eager products for every form of a wide head", "[kernels]") {
  check_accuracy({.element = GENERATE(MetricElement::tf32, MetricElement::fp32),
                  .form = GENERATE(values(forms)),
                  .batch = 1,
                  .tokens = 40,
                  .width = GENERATE(88, 120)});
}

TEST_CASE("kernels are as accurate as eager products for every form, score and mask", "[kernels]") {
  const auto choice = any_choice({elements.size(), forms.size(), masks.size(), 2, 2});
  const bool distance = choice[3] == 1;
  check_accuracy({.element = number(choice[0], elements),
                  .form = number(choice[1], forms),
                  .distance = distance,
                  .causal = choice[4] == 0,
                  .mask = number(choice[2], masks),
                  .tokens = 90,
                  .width = 24,
                  .spread = distance ? 0.5 : 1});
}

TEST_CASE("with dropout kernels are as accurate as eager products that drop the same weights", "[kernels]") {
  const bool distance = GENERATE(false, true);
  check_accuracy({.element = GENERATE(values(elements)),
                  .distance = distance,
                  .causal = !distance,
                  .mask = distance ? Mask::padding : Mask::none,
                  .tokens = 90,
                  .width = 24,
                  .spread = distance ? 0.5 : 1,
                  .dropout = GENERATE(0.2, 0.9)});
}

TEST_CASE("with more than 256 heads or 65,536 tokens kernels drop the same weights as the CPU", "[kernels]") {
  const auto [heads, tokens, keys] = GENERATE(table<int, int, int>({{260, 5, 0}, {1, 1, 68'000}, {1, 68'000, 1}}));
  const MetricCase problem = {.element = MetricElement::bf16,
                              .causal = false,
                              .layout = Layout::contiguous,
                              .batch = 1,
                              .heads = heads,
                              .tokens = tokens,
                              .width = 16,
                              .keys = keys,
                              .dropout = 0.5};
  check_accuracy(problem, 1);
}

TEST_CASE("kernels are as accurate as eager products with more or fewer separate keys than queries", "[kernels]") {
  const std::initializer_list<std::pair<int, int>> lengths = {{70, 150}, {150, 70}, {1, 200},
                                                              {40, 1},   {64, 128}, {17, 90}};
  const auto choice = any_choice({elements.size(), lengths.size(), 2, 2});
  const auto [tokens, keys] = number(choice[1], lengths);
  const bool distance = choice[2] == 1;
  check_accuracy({.element = number(choice[0], elements),
                  .distance = distance,
                  .causal = choice[3] == 1,
                  .mask = tokens == 64 ? Mask::padding : Mask::none,
                  .batch = tokens == 1 || keys == 1 ? 12 : 2,  // the error of few rows would be due to chance
                  .tokens = tokens,
                  .width = keys == 150 ? 40 : 16,
                  .keys = keys,
                  .spread = distance ? 0.5 : 1,
                  .dropout = keys == 90 ? 0.3 : 0});
}

TEST_CASE("kernels are as accurate as eager products with separate keys for every form and mask", "[kernels]") {
  const auto choice = any_choice({half_and_full.size(), forms.size(), masks.size(), 2, 2});
  const bool distance = choice[3] == 1, causal = choice[4] == 0;
  check_accuracy({.element = number(choice[0], half_and_full),
                  .form = number(choice[1], forms),
                  .distance = distance,
                  .causal = causal,
                  .mask = number(choice[2], masks),
                  .layout = causal ? Layout::interleaved : Layout::unaligned,
                  .tokens = 50,
                  .width = 24,
                  .keys = 90,
                  .spread = distance ? 0.5 : 1});
}

TEST_CASE("kernels are as accurate as eager products with own values, at every width", "[kernels]") {
  const auto element = GENERATE(values(elements));
  const int width = GENERATE(8, 16, 24, 32, 40, 48, 64, 72, 96, 128);
  if (!cuda::has_kernels_for_values(element, width))
    return does_not_apply("no kernels of this width with values of their own");
  check_accuracy(
      {.element = element, .causal = width % 16 == 0, .batch = 1, .tokens = 141, .width = width, .values = true});
}

TEST_CASE("kernels are as accurate as eager products with own values, for every form and mask", "[kernels]") {
  const auto choice = any_choice({half_and_full.size(), forms.size(), masks.size(), 2, 2, 2});
  const bool distance = choice[3] == 1, causal = choice[4] == 0, others = choice[5] == 1;
  const auto mask = number(choice[2], masks);
  check_accuracy({.element = number(choice[0], half_and_full),
                  .form = number(choice[1], forms),
                  .distance = distance,
                  .causal = causal,
                  .mask = mask,
                  .layout = causal ? Layout::interleaved : Layout::unaligned,
                  .tokens = 70,
                  .width = 24,
                  .keys = others ? 90 : 0,
                  .values = true,
                  .spread = distance ? 0.5 : 1,
                  .dropout = mask == Mask::padding ? 0.3 : 0});
}

// The identity with separate keys and own values: a sequence, a step of a decoder, cross-attention.
TEST_CASE("the kernels compute scaled dot product attention, with dropout", "[kernels]") {
  using Tokens = std::tuple<int, int, bool>;
  const std::initializer_list<Tokens> sides = {{141, 141, true}, {141, 141, false}, {1, 200, true}, {70, 150, false}};
  const auto choice = any_choice({elements.size(), sides.size(), 2, 2});
  const auto [tokens, keys, causal] = number(choice[1], sides);
  check_accuracy({.element = number(choice[0], elements),
                  .form = MetricForm::identity,
                  .causal = causal,
                  .batch = tokens == 1 ? 12 : 2,
                  .tokens = tokens,
                  .width = choice[2] == 0 ? 32 : 64,
                  .keys = keys,
                  .values = true,
                  .dropout = choice[3] == 0 ? 0 : 0.2});
}

TEST_CASE("the short backward pass is as accurate as eager products at every length", "[kernels]") {
  const std::initializer_list<int> lengths = {1, 2, 16, 17, 64, 65, 100, 128, 129, 200, 256};
  const auto choice = any_choice({lengths.size(), narrow_elements.size(), 2, 2});
  const int tokens = number(choice[0], lengths);
  check_accuracy({.element = number(choice[1], narrow_elements),
                  .causal = choice[2] == 0,
                  .batch = tokens > 2 ? 2 : 32,  // the error of few rows would be due to chance
                  .heads = tokens > 100 ? 1 : 2,
                  .tokens = tokens,
                  .width = tokens % 2 == 0 ? 32 : 16,
                  .values = choice[3] == 0,
                  .short_parts = tokens == 64 ? 1 : 2});
}

TEST_CASE("the short backward pass is as accurate as eager products in a long context of a wide head", "[kernels]") {
  const auto choice = any_choice({narrow_elements.size(), 2, 2});
  const bool values = choice[1] == 0;
  const cuda::MetricInputs in{.width = 64, .queries = {.tokens = 141}, .values = values ? &values : nullptr};
  if (!cuda::has_short_backward(in)) return does_not_apply("its tokens do not fit into this GPU's shared memory");
  check_accuracy({.element = number(choice[0], narrow_elements),
                  .causal = choice[2] == 0,
                  .batch = 1,
                  .heads = 1,
                  .tokens = 141,
                  .width = 64,
                  .values = values,
                  .short_parts = 1});
}

TEST_CASE("the short backward pass is as accurate as eager products at every width", "[kernels]") {
  const std::initializer_list<int> widths = {8, 16, 24, 32, 40, 48, 56, 64};
  const auto choice = any_choice({widths.size(), narrow_elements.size(), 2});
  const int width = number(choice[0], widths);
  check_accuracy({.element = number(choice[1], narrow_elements),
                  .causal = width % 16 == 0,
                  .batch = 1,
                  .tokens = 70,
                  .width = width,
                  .values = choice[2] == 0,
                  .short_parts = 1});
}

TEST_CASE("the short backward pass is as accurate as eager products for every form and mask", "[kernels]") {
  const auto choice = any_choice({narrow_elements.size(), forms.size(), masks.size(), 2, 2, 2, 2});
  const bool causal = choice[3] == 0;
  check_accuracy({.element = number(choice[0], narrow_elements),
                  .form = number(choice[1], forms),
                  .causal = causal,
                  .mask = number(choice[2], masks),
                  .layout = causal ? Layout::interleaved : Layout::unaligned,
                  .tokens = 90,
                  .width = choice[4] == 0 ? 24 : 48,
                  .values = choice[5] == 0,
                  .dropout = choice[6] == 0 ? 0 : 0.3,
                  .short_parts = 2});
}

TEST_CASE("the short backward pass applies a form that is not symmetric from the correct side", "[kernels]") {
  check_accuracy({.element = GENERATE(from_range(narrow_elements)),
                  .symmetric = false,
                  .batch = 1,
                  .tokens = 75,
                  .width = GENERATE(16, 40, 64),
                  .values = GENERATE(false, true),
                  .short_parts = 1});
}

TEST_CASE("neither order of execution nor strides change a bit of the short backward pass", "[kernels]") {
  MetricCase problem = {.element = GENERATE(from_range(narrow_elements)),
                        .layout = Layout::contiguous,
                        .batch = 3,
                        .tokens = GENERATE(67, 110),
                        .width = 40,
                        .values = GENERATE(false, true),
                        .dropout = 0.2,
                        .short_parts = 2};
  choose_schedule(0);
  const auto expected = run_kernels(problem);
  for (const auto layout : {Layout::contiguous, Layout::interleaved, Layout::unaligned}) {
    problem.layout = layout;
    for (std::uint64_t turn = 1; turn < 6; ++turn) {
      choose_schedule(turn);
      INFO(problem.str() << " turn " << turn);
      CHECK(run_kernels(problem) == expected);
    }
  }
}

TEST_CASE("the number of parts of the short backward pass changes only the rounding of the metric's gradient",
          "[kernels]") {
  MetricCase problem = {.batch = 5, .tokens = 40, .values = GENERATE(false, true), .short_parts = 5};
  const auto expected = run_kernels(problem);
  problem.short_parts = GENERATE(1, 2, 3);
  auto result = run_kernels(problem);
  CHECK(distance(result.dmetric, expected.dmetric) < 1e-6 * norm(expected.dmetric));
  result.dmetric = expected.dmetric;
  CHECK(result == expected);
}

TEST_CASE("a NaN reaches no other sequence that the same block of the short backward pass computes", "[kernels]") {
  const MetricCase problem = {.causal = false,
                              .batch = 3,
                              .heads = 1,
                              .tokens = 50,
                              .width = 16,
                              .values = GENERATE(false, true),
                              .short_parts = 1};
  const int per_sequence = problem.tokens * problem.width;
  const auto clean = run_kernels(problem), kernel = run_kernels(problem, per_sequence + 7);
  for (const int sequence : {0, 2}) {
    const auto part = [&](const Values& of) {
      return Values(of.begin() + sequence * per_sequence, of.begin() + (sequence + 1) * per_sequence);
    };
    CHECK(part(kernel.t) == part(clean.t));
    CHECK(part(kernel.dp) == part(clean.dp));
    if (problem.values) CHECK(part(kernel.dvalues) == part(clean.dvalues));
  }
  CHECK(std::isnan(kernel.dp[static_cast<std::size_t>(per_sequence)]));
}

TEST_CASE("the short backward pass serves what fits into the shared memory of a device", "[kernels]") {
  constexpr int of_8_0 = 163 << 10, of_12_0 = 99 << 10;
  const auto bytes = [](int tokens, int width, bool values, const std::function<void(cuda::MetricInputs&)>& change) {
    cuda::MetricInputs in{.width = width, .queries = {.tokens = tokens}, .keys = {.tokens = tokens}};
    if (values) in.values = &in;
    change(in);
    return cuda::metric_short_bytes(in);
  };
  const auto usual = [](cuda::MetricInputs&) {};
  for (const bool values : {false, true}) {
    for (const int width : {8, 24, 32, 40, 64}) {
      const int longest = bytes(256, width, values, usual), middle = bytes(128, width, values, usual);
      CHECK(bytes(1, width, values, usual) > 0);
      CHECK(bytes(64, width, values, usual) < middle);
      CHECK(bytes(129, width, values, usual) == longest);
      CHECK(middle <= of_12_0);
      CHECK(longest <= of_8_0);
      CHECK((longest <= of_12_0) == (width <= 32));
      CHECK(bytes(257, width, values, usual) == 0);
    }
    CHECK(bytes(64, 72, values, usual) == 0);
    CHECK(bytes(64, 20, values, usual) == 0);
    CHECK(bytes(64, 32, values, [](auto& in) { in.distance = true; }) == 0);
    CHECK(bytes(64, 32, values, [](auto& in) { in.to_themselves = false; }) == 0);
    for (const auto element : {MetricElement::tf32, MetricElement::fp32})
      CHECK(bytes(64, 32, values, [&](auto& in) { in.element = element; }) == 0);
  }
}

TEST_CASE("a short backward pass that does not exist is refused before the launch of a kernel", "[kernels]") {
  cuda::MetricBackward backward;
  auto& in = backward.in;
  in.batch = in.heads = 1;
  in.queries.tokens = in.keys.tokens = 300;
  in.width = 32;
  const auto refusal = [&](std::int64_t parts) {
    return failure([&] { cuda::metric_short_backward(backward, parts, nullptr); }).second;
  };
  CHECK_THAT(refusal(1), Mentions("300 tokens|width 32"));
  in.queries.tokens = in.keys.tokens = 30;
  CHECK_THAT(refusal(2), ContainsSubstring("2 parts"));
  in.batch = 0;
  CHECK_NOTHROW(cuda::metric_short_backward(backward, 1, nullptr));
}

TEST_CASE("a form that is not symmetric is applied from the correct side", "[kernels]") {
  check_accuracy(
      {.element = GENERATE(values(elements)), .symmetric = false, .tokens = 75, .width = GENERATE(16, 40, 64)});
}

TEST_CASE("any strides and any alignment of inputs give the same bits", "[kernels]") {
  MetricCase problem = {.element = GENERATE(values(elements)), .layout = Layout::contiguous, .tokens = 67, .width = 40};
  const auto expected = run_kernels(problem);
  problem.layout = GENERATE(Layout::interleaved, Layout::unaligned);
  INFO(problem.str());
  CHECK(run_kernels(problem) == expected);
}

TEST_CASE("no order of execution changes a bit", "[kernels]") {
  const MetricCase problem = {.element = GENERATE(MetricElement::bf16, MetricElement::fp32),
                              .distance = GENERATE(false, true),
                              .batch = 1,
                              .heads = 1,
                              .tokens = 150};
  choose_schedule(0);
  const auto expected = run_kernels(problem);
  for (std::uint64_t turn = 1; turn < 12; ++turn) {
    choose_schedule(turn);
    INFO(problem.str() << " turn " << turn);
    CHECK(run_kernels(problem) == expected);
  }
}

// Several waves of blocks are more than a GPU runs at a time. The emulator runs three at a time.
TEST_CASE("blocks in several waves give the same bits in every run, and gradients near those of fp32", "[kernels]") {
  const bool emulated = cuda::metric_kernel_device() == cuda::MetricDevice::host;
  const bool values = GENERATE(false, true);
  MetricCase problem = {.batch = emulated ? 1 : 4,
                        .heads = emulated ? 2 : 8,
                        .tokens = emulated ? 300 : 4096,
                        .width = emulated ? 16 : 64,
                        .values = values};
  choose_schedule(0);
  const auto first = run_kernels(problem);
  const std::uint64_t repeats = emulated ? 4 : 20;
  for (std::uint64_t turn = 1; turn < repeats; ++turn) {
    choose_schedule(turn);
    REQUIRE(run_kernels(problem) == first);
  }
  problem.given = MetricElement::bf16;
  problem.element = MetricElement::fp32;
  const auto wide = run_kernels(problem);
  for (const auto field : {&MetricResult::t, &MetricResult::dp, &MetricResult::dvalues, &MetricResult::dmetric})
    CHECK(distance(first.*field, wide.*field) <= 0.02 * norm(wide.*field));
}

TEST_CASE("scores far from 0 cause no overflow", "[kernels]") {
  const MetricCase problem = {.element = GENERATE(values(elements)),
                              .form = MetricForm::identity,
                              .tokens = 80,
                              .width = 16,
                              .spread = 12};  // scores up to a few hundred
  const auto kernel = run_kernels(problem);
  for (const auto& values : {kernel.t, kernel.dp, kernel.log2_sum})
    for (const double value : values) REQUIRE(std::isfinite(value));
  // Scores are exact except for the rounding of sums, because q is p.
  const auto exact = solve_exactly(problem).t;
  CHECK(distance(kernel.t, exact) < 4 * unit_roundoff(problem.element) * norm(exact));
}

TEST_CASE("a NaN reaches the tokens that see it, but no other head or sequence", "[kernels]") {
  const MetricCase problem = {
      .element = GENERATE(values(elements)), .causal = GENERATE(true, false), .tokens = 130, .width = 16};
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

TEST_CASE("empty inputs give empty results", "[kernels]") {
  const int batch = GENERATE(0, 2);
  CHECK(run_kernels({.batch = batch, .tokens = batch == 0 ? 8 : 0, .keys = GENERATE(0, 3)}).t.empty());
}

TEST_CASE("unsupported sizes and options are refused before the launch of a kernel", "[kernels]") {
  cuda::MetricForward forward;
  auto& in = forward.in;
  in.batch = in.heads = in.queries.tokens = in.keys.tokens = 1;
  in.scale = 1;
  in.metric = &in;
  const auto refusal = [&] { return failure([&] { cuda::metric_forward(forward, nullptr); }).second; };
  in.width = GENERATE(100, 136, 4);
  CHECK_THAT(refusal(), Mentions("multiple of 8|128"));
  in.width = 16;
  in.metric = nullptr;
  CHECK_THAT(refusal(), ContainsSubstring("a metric goes with"));
  in.metric = &in;
  in.scale = 0;
  CHECK_THAT(refusal(), ContainsSubstring("scale"));
  in.scale = 1;
  auto& tokens = GENERATE(true, false) ? in.queries.tokens : in.keys.tokens;
  tokens = std::int64_t{1} << 40;
  CHECK_THAT(refusal(), ContainsSubstring("a grid holds"));
  tokens = 1;
  in.keys.tokens = 0;
  CHECK_THAT(refusal(), ContainsSubstring("no keys"));
}

TEST_CASE("machine code runs on devices of its major version, PTX also on newer ones", "[kernels]") {
  static constexpr auto shipped = "80-real;90-real;100-real;120-real;90-virtual";
  const auto [code, major, minor, runs] =
      GENERATE(table<const char*, int, int, bool>({{shipped, 7, 5, false},
                                                   {shipped, 8, 0, true},
                                                   {shipped, 8, 9, true},
                                                   {shipped, 9, 0, true},
                                                   {shipped, 10, 3, true},
                                                   {shipped, 12, 0, true},
                                                   {shipped, 11, 0, true},  // by PTX
                                                   {"86-real", 8, 0, false},
                                                   {"80-real", 9, 0, false},
                                                   {"80", 9, 0, true},  // both
                                                   {"80-virtual", 7, 5, false},
                                                   {"", 9, 0, false}}));
  CAPTURE(code, major, minor);
  CHECK(cuda::has_code_for(code, major, minor) == runs);
}

}  // namespace metaformer
