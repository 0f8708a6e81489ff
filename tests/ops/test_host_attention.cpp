// Attention on the CPU by the program's kernel, against the formula in float64, for every instruction set of this CPU.

#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "cpu/attention.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/kernel.h"
#include "support/threads.h"
#include "support/torch_catch.h"

namespace metaformer::test_host_attention {

namespace {

struct Problem {
  torch::Tensor q, k, v, dt;
  HostAttentionOptions options;
  bool shared = false;
  HostDistances distances = {};
};

torch::Tensor visible_bce(const HostAttentionOptions& options, std::int64_t batch, std::int64_t queries,
                          std::int64_t keys) {
  auto visible = torch::ones({batch, queries, keys}, torch::kBool);
  if (options.causal) visible = visible.tril(keys - queries);
  if (options.window > 0) visible = visible.triu(keys - queries - options.window + 1);
  if (options.window > 0) visible = visible.tril(keys - queries + options.window - 1);
  if (!options.query_segment_bc.defined()) return visible;
  const auto query = options.query_segment_bc.unsqueeze(2);
  return visible.logical_and(query == options.key_segment_be.unsqueeze(1)).logical_and(query >= 0);
}

// The score of each pair by its distance; 0 if the distance has no row.
torch::Tensor distance_scores(const HostDistances& distances, std::int64_t keys) {
  const auto queries = distances.q_bnck.size(2), rows = distances.key_nlk.size(1);
  const auto row_ce = torch::arange(keys).unsqueeze(0) + torch::arange(queries - 1, -1, -1).unsqueeze(1);
  const auto key_ncek = distances.key_nlk.index({torch::indexing::Slice(), row_ce.clamp_max(rows - 1)});
  return torch::einsum("bnck,ncek->bnce", {distances.q_bnck, key_ncek}) * (row_ce < rows);
}

// softmax(scale q k^T) v over the visible keys; zeros if there are none. `kept`: the mask of dropout.
torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const HostAttentionOptions& options, const torch::Tensor& kept = torch::ones({}),
                        const HostDistances& distances = {}) {
  const auto hidden = visible_bce(options, q.size(0), q.size(2), k.size(2)).unsqueeze(1).logical_not();
  auto product = torch::matmul(q, k.transpose(2, 3));
  if (distances.q_bnck.defined()) product = product + distance_scores(distances, k.size(2));
  const auto score = (product * options.scale).masked_fill(hidden, -INFINITY);
  const auto weight = torch::_safe_softmax(score, -1) * kept / (1 - options.dropout);
  return torch::matmul(weight.to(v.scalar_type()), v);
}

torch::Tensor draw(std::int64_t tokens, std::int64_t width, torch::ScalarType type) {
  return torch::randn({2, tokens, 3, width}).to(type).transpose(1, 2);  // strides of a projection's heads
}

Problem draw_problem(std::int64_t tokens, std::int64_t width, std::int64_t value_width, bool shared,
                     torch::ScalarType type = torch::kFloat) {
  torch::manual_seed(tokens * 1000 + width);
  Problem problem{.q = draw(tokens, width, type),
                  .k = draw(tokens, width, type),
                  .v = {},
                  .dt = draw(tokens, value_width, type),
                  .options = {.scale = 0.3},
                  .shared = shared};
  problem.v = shared ? problem.k : draw(tokens, value_width, type);
  return problem;
}

// The same with fewer queries, the last tokens.
Problem draw_last(std::int64_t queries, std::int64_t tokens, std::int64_t width, bool shared,
                  torch::ScalarType type = torch::kFloat) {
  auto problem = draw_problem(tokens, width, width, shared, type);
  problem.q = problem.q.narrow(2, tokens - queries, queries);
  problem.dt = problem.dt.narrow(2, tokens - queries, queries);
  return problem;
}

void draw_distances(Problem& problem) {
  const auto queries = problem.q.size(2), keys = problem.k.size(2), width = problem.q.size(3);
  const auto rows = problem.options.causal ? keys : keys + queries - 1;
  problem.distances = {.q_bnck = draw(queries, width, problem.q.scalar_type()),
                       .key_nlk = torch::randn({rows, 3, width}).to(problem.q.scalar_type()).transpose(0, 1)};
}

// t and the gradients of q, k (with a shared tensor the sum of both), v, and with distances of their queries and keys.
using Answer = std::vector<torch::Tensor>;

template <class Attend>
Answer answer(const Problem& problem, torch::ScalarType type, Attend attend) {
  const auto leaf = [&](const torch::Tensor& x) { return x.detach().to(type).requires_grad_(); };
  const auto q = leaf(problem.q), k = leaf(problem.k), v = problem.shared ? k : leaf(problem.v);
  const bool has_distances = problem.distances.q_bnck.defined();
  HostDistances distances;
  if (has_distances) distances = {.q_bnck = leaf(problem.distances.q_bnck), .key_nlk = leaf(problem.distances.key_nlk)};
  const auto t = attend(q, k, v, distances);
  t.backward(problem.dt.to(type));
  Answer answer = {t.detach(), q.grad(), k.grad(), v.grad()};
  if (has_distances) answer.insert(answer.end(), {distances.q_bnck.grad(), distances.key_nlk.grad()});
  return answer;
}

// By the formula, in a given type.
Answer by_formula(const Problem& problem, torch::ScalarType type = torch::kDouble) {
  return answer(problem, type, [&](const auto& q, const auto& k, const auto& v, const HostDistances& distances) {
    return attention(q, k, v, problem.options, torch::ones({}), distances);
  });
}

Answer ours(const Problem& problem) {
  return answer(problem, problem.q.scalar_type(),
                [&](const auto& q, const auto& k, const auto& v, const HostDistances& distances) {
                  REQUIRE(can_attend_on_host(q, k, v));
                  Pass pass;
                  return host_attention(q, k, v, problem.options, pass, distances);
                });
}

void check_near(const Answer& given, const Answer& expected, double tolerance = 3e-6) {
  REQUIRE(given.size() == expected.size());
  for (std::size_t i = 0; i < given.size(); ++i) CHECK(relative_error(given[i], expected[i]) < tolerance);
}

// Two documents and padding in the first row, only padding in the second.
torch::Tensor segments_for(std::int64_t tokens) {
  auto segments = torch::full({2, tokens}, -1, torch::kLong);
  segments.narrow(0, 0, 1).narrow(1, 0, tokens / 2).fill_(0);
  segments.narrow(0, 0, 1).narrow(1, tokens / 2, tokens / 3).fill_(1);
  return segments;
}

}  // namespace

TEST_CASE("attention on the host equals the formula at every length and width", "[host]") {
  const std::int64_t tokens = GENERATE(2, 31, 32, 33, 64, 70, 129), width = GENERATE(1, 8, 16, 24, 33, 40, 64);
  const bool causal = GENERATE(true, false), shared = GENERATE(false, true);
  auto problem = draw_problem(tokens, width, width == 40 && !shared ? 8 : width, shared);  // values have another width
  problem.options.causal = causal;
  INFO(tokens << " tokens, width " << width << (causal ? " causal" : "") << (shared ? " shared" : ""));
  check_near(ours(problem), by_formula(problem));
}

TEST_CASE("a token that sees only itself gets its own value, and its score has no gradient", "[host]") {
  auto problem = draw_problem(1, 24, 24, false);
  problem.options.causal = GENERATE(true, false);
  const auto given = ours(problem);
  CHECK(torch::allclose(given[0], problem.v, 1e-6, 1e-6));
  CHECK(torch::allclose(given[3], problem.dt, 1e-6, 1e-6));  // backward recomputes the weight 1
  // 0 except for the rounding of dt . v, which is subtracted from itself.
  const double rounding = 24 * 0x1p-23 * (problem.dt.norm() * problem.v.norm() * problem.k.norm()).item<double>();
  CHECK(given[1].norm().item<double>() < rounding);
  CHECK(given[2].norm().item<double>() < rounding);
}

TEST_CASE("attention on the host excludes keys of other segments, wherever these begin", "[host]") {
  constexpr std::int64_t tokens = 200;
  auto problem = draw_problem(tokens, 16, 16, GENERATE(false, true));
  problem.options.causal = GENERATE(true, false);
  const std::int64_t length = GENERATE(1, 7, 32, 33, 90);
  auto segment_c = torch::arange(tokens).floor_divide(length);
  if (GENERATE(false, true)) segment_c = (tokens / length - segment_c) % 5;  // falling and repeated numbers
  problem.options.query_segment_bc = problem.options.key_segment_be = segment_c.repeat({2, 1});
  const auto given = ours(problem), truth = by_formula(problem);
  CHECK(relative_error(given[0], truth[0]) < 3e-6);
  CHECK(relative_error(given[3], truth[3]) < 3e-6);
  if (length > 1) check_near(given, truth);
}

TEST_CASE("padding after a row changes no bit of the row and gets zeros", "[host]") {
  const std::int64_t tokens = GENERATE(1, 31, 64, 77), padding = GENERATE(1, 32, 50);
  const bool causal = GENERATE(true, false), shared = GENERATE(false, true);
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  auto padded = draw_problem(tokens + padding, 24, 24, shared, type);
  padded.options.causal = causal;
  padded.options.query_segment_bc = padded.options.key_segment_be =
      torch::cat({torch::full({2, tokens}, 3, torch::kLong), torch::full({2, padding}, -1, torch::kLong)}, 1);
  auto bare = padded;
  for (auto* x : {&bare.q, &bare.k, &bare.v, &bare.dt}) *x = x->narrow(2, 0, tokens);
  if (shared) bare.v = bare.k;
  bare.options.query_segment_bc = bare.options.key_segment_be = torch::Tensor();
  const auto given = ours(padded), expected = ours(bare);
  for (std::size_t i = 0; i < given.size(); ++i) {
    CHECK(torch::equal(given[i].narrow(2, 0, tokens), expected[i]));
    CHECK(given[i].narrow(2, tokens, padding).abs().max().item<float>() == 0);
  }
}

TEST_CASE("queries may be the last tokens of more keys, and see only the keys of their window", "[host]") {
  const std::int64_t queries = GENERATE(16, 33, 64), memory = GENERATE(0, 1, 31, 32, 70);
  const std::int64_t window = GENERATE(0, 1, 20, 64, 500);
  const bool shared = GENERATE(false, true);
  auto problem = draw_last(queries, queries + memory, 24, shared);
  problem.options.causal = true;
  problem.options.window = window;
  INFO(queries << " queries, " << memory << " before them, window " << window);
  const auto given = ours(problem), truth = by_formula(problem);
  CHECK(relative_error(given[0], truth[0]) < 3e-6);
  CHECK(relative_error(given[3], truth[3]) < 3e-6);
  if (window == 1) return;  // a weight of 1 has no slope
  check_near(given, truth);
}

TEST_CASE("a window has two sides without a causal mask", "[host]") {
  const std::int64_t tokens = GENERATE(16, 33, 129, 200), window = GENERATE(2, 20, 64, 500);
  auto problem = draw_problem(tokens, 24, 24, GENERATE(false, true));
  problem.options.window = window;
  if (GENERATE(false, true)) problem.options.query_segment_bc = problem.options.key_segment_be = segments_for(tokens);
  INFO(tokens << " tokens, window " << window);
  check_near(ours(problem), by_formula(problem));
}

TEST_CASE("heads with shared keys or values, sinks and their gradients equal the formula", "[host]") {
  const std::int64_t tokens = GENERATE(7, 32, 70), key_heads = GENERATE(1, 2, 6), value_heads = GENERATE(1, 3);
  const bool has_sinks = GENERATE(false, true);
  torch::manual_seed(tokens);
  HostAttentionOptions options{.causal = GENERATE(true, false), .window = GENERATE(0, 20), .scale = 0.3};
  if (GENERATE(false, true)) options.query_segment_bc = options.key_segment_be = segments_for(tokens);
  const auto drawn = [&](std::int64_t heads, std::int64_t width) { return torch::randn({2, heads, tokens, width}); };
  const std::vector<torch::Tensor> inputs = {drawn(6, 16), drawn(key_heads, 16), drawn(value_heads, 24),
                                             3 * torch::randn(6)};
  const auto dt = drawn(6, 24);
  const auto gradients_of = [&](torch::ScalarType type, const auto& attend) {
    std::vector<torch::Tensor> leaves;
    for (const auto& input : inputs) leaves.push_back(input.to(type).detach().requires_grad_());
    const auto t = attend(leaves[0], leaves[1], leaves[2], has_sinks ? leaves[3] : torch::Tensor());
    leaves.resize(has_sinks ? 4 : 3);
    auto all = torch::autograd::grad({t}, leaves, {dt.to(type)});
    all.push_back(t.detach());
    return all;
  };
  const auto given = gradients_of(torch::kFloat, [&](const auto& q, const auto& k, const auto& v, const auto& sink_n) {
    Pass pass;
    return host_attention(q, k, v, options, pass, {}, sink_n);
  });
  const auto truth = gradients_of(torch::kDouble, [&](const auto& q, const auto& k, const auto& v, const auto& sink_n) {
    const auto repeated = [](const torch::Tensor& x) { return x.repeat_interleave(6 / x.size(1), 1); };
    const auto hidden = visible_bce(options, 2, tokens, tokens).unsqueeze(1).logical_not();
    const auto part = (torch::matmul(q, repeated(k).transpose(2, 3)) * options.scale).exp().masked_fill(hidden, 0);
    auto total = part.sum(3, true);
    if (sink_n.defined()) total = total + sink_n.exp().view({1, -1, 1, 1});
    return torch::matmul(part / total.clamp_min(1e-300), repeated(v));
  });
  check_near(given, truth);
}

TEST_CASE("a sink far above or below all scores causes no overflow on the host", "[host]") {
  auto problem = draw_problem(40, 16, 16, false);
  problem.options.causal = true;
  Pass pass;
  const auto t = [&](double sink) {
    return host_attention(problem.q, problem.k, problem.v, problem.options, pass, {}, torch::full({3}, sink));
  };
  CHECK(torch::equal(t(-1e30), ours(problem)[0]));
  CHECK(t(1e30).abs().max().item<float>() == 0);
  CHECK(t(-200).isfinite().all().item<bool>());
  CHECK(t(200).isfinite().all().item<bool>());
}

TEST_CASE("distances add a separate product to the score of every pair", "[host]") {
  const std::int64_t queries = GENERATE(16, 31, 32, 75), memory = GENERATE(0, 1, 32, 45), width = GENERATE(8, 33);
  const bool causal = GENERATE(true, false), shared = GENERATE(false, true);
  auto problem = draw_last(queries, queries + memory, width, shared);
  problem.options.causal = causal;
  if (causal) problem.options.window = GENERATE(0, 40);
  draw_distances(problem);
  INFO(queries << " queries, " << memory << " before them, width " << width);
  check_near(ours(problem), by_formula(problem));
}

TEST_CASE("attention on the host supports segments and padding, also with distances and memory", "[host]") {
  const auto [queries, memory, has_distances] = GENERATE(table<std::int64_t, std::int64_t, bool>(
      {{12, 0, false}, {65, 0, false}, {100, 0, false}, {40, 0, true}, {64, 0, true}, {40, 30, true}, {64, 30, true}}));
  auto problem = draw_last(queries, queries + memory, 16, GENERATE(false, true));
  problem.options.causal = GENERATE(true, false);
  if (has_distances) draw_distances(problem);
  const auto own = segments_for(queries);
  problem.options.query_segment_bc = own;
  problem.options.key_segment_be = torch::cat({torch::zeros({2, memory}, torch::kLong), own}, 1);
  const auto given = ours(problem);
  check_near(given, by_formula(problem));
  for (const std::size_t of_queries : {0, 1, 4})
    if (of_queries < given.size()) CHECK(given[of_queries].select(0, 1).abs().max().item<float>() == 0);
}

TEST_CASE("there may be fewer rows of distances than keys", "[host]") {
  auto problem = draw_last(40, 90, 16, false);
  problem.options.causal = true;
  draw_distances(problem);
  problem.distances.key_nlk = problem.distances.key_nlk.narrow(1, 0, 60);
  check_near(ours(problem), by_formula(problem));
}

TEST_CASE("in bfloat16 the error of attention on the host is at most twice that of eager products", "[host]") {
  const bool shared = GENERATE(false, true), has_distances = GENERATE(false, true);
  auto problem = has_distances ? draw_last(60, 90, 32, shared, torch::kBFloat16)
                               : draw_problem(90, 32, 32, shared, torch::kBFloat16);
  problem.options.causal = true;
  if (has_distances) draw_distances(problem);
  const auto truth = by_formula(problem), given = ours(problem), eager = by_formula(problem, torch::kBFloat16);
  for (std::size_t i = 0; i < given.size(); ++i)
    CHECK(relative_error(given[i], truth[i]) <= 2 * relative_error(eager[i], truth[i]));
}

TEST_CASE("a loop over heads runs on every thread", "[host]") {
  const Threads two(2);
  std::mutex lock;
  std::set<std::thread::id> seen;
  at::parallel_for(0, 64, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard guard(lock);
    seen.insert(std::this_thread::get_id());
  });
  CHECK(seen.size() == 2);
}

TEST_CASE("scores far from 0 cause no overflow on the host, and NaN reaches only tokens that see it", "[host]") {
  auto problem = draw_problem(40, 16, 16, false);
  problem.options.causal = true;
  problem.options.scale = 300;
  const auto large = ours(problem);
  CHECK(large[0].isfinite().all().item<bool>());
  CHECK(large[1].isfinite().all().item<bool>());
  CHECK(relative_error(large[0], by_formula(problem)[0]) < 1e-3);
  problem.options.scale = 0.3;
  problem.k.index_put_({0, 0, 20, 3}, std::nan(""));
  const auto t = ours(problem)[0];
  CHECK(t.select(0, 1).isfinite().all().item<bool>());
  CHECK(t.index({0, 0, torch::indexing::Slice(0, 20)}).isfinite().all().item<bool>());
  CHECK(t.index({0, 0, torch::indexing::Slice(20)}).isnan().all().item<bool>());
}

TEST_CASE("dropout on the host drops the configured fraction of weights, with the same mask forward and backward",
          "[host]") {
  constexpr std::int64_t tokens = 70;
  constexpr double dropout = 0.3;
  auto problem = draw_problem(tokens, 16, 16, false);
  problem.options.causal = GENERATE(true, false);
  auto dropping = problem.options;
  dropping.dropout = dropout;
  StepPasses passes(5, torch::kCPU);
  passes.set_step(1);
  const auto attend = [&](const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    auto pass = passes.pass(0);
    return host_attention(q, k, v, dropping, pass);
  };
  // With an identity as values the result is the weights.
  const auto identity = torch::eye(tokens).expand({2, 3, tokens, tokens}).contiguous();
  const auto dropped = attend(problem.q, problem.k, identity);
  Pass evaluation;
  const auto whole = host_attention(problem.q, problem.k, identity, dropping, evaluation);
  const auto mask = (dropped != 0).logical_or(whole == 0);
  const double share = (mask.logical_not().sum() / (whole != 0).sum()).item<double>();
  CHECK(share == Approx(dropout).margin(0.02));
  CHECK_FALSE(torch::equal(mask.select(1, 0), mask.select(1, 1)));  // heads have different masks
  CHECK_FALSE(torch::equal(mask.select(0, 0), mask.select(0, 1)));
  const auto truth =
      answer(problem, torch::kDouble, [&](const auto& q, const auto& k, const auto& v, const HostDistances&) {
        return attention(q, k, v, dropping, mask);
      });
  const auto given =
      answer(problem, torch::kFloat,
             [&](const auto& q, const auto& k, const auto& v, const HostDistances&) { return attend(q, k, v); });
  check_near(given, truth);
  passes.set_step(2);
  CHECK_FALSE(torch::equal(attend(problem.q, problem.k, identity), dropped));
}

TEST_CASE("attention on the host drops the same weights as dropout_of_weights", "[host]") {
  const auto [heads, queries] = GENERATE(table<std::int64_t, std::int64_t>({{2, 40}, {300, 3}, {1, 70'000}}));
  constexpr std::int64_t keys = 16;
  HostAttentionOptions options;
  options.dropout = 0.4;
  StepPasses passes(5, torch::kCPU);
  auto pass = passes.pass(2), again = passes.pass(2);
  // With equal weights and an identity as values the result shows the kept weights.
  const auto q = torch::zeros({2, heads, queries, 16}), k = torch::zeros({2, heads, keys, 16});
  const auto identity = torch::eye(keys).expand({2, heads, keys, keys}).contiguous();
  const auto t_bnce = host_attention(q, k, identity, options, pass);
  CHECK(torch::equal(t_bnce != 0, dropout_of_weights(torch::ones_like(t_bnce), options.dropout, again) != 0));
}

TEST_CASE("attention of a projection gives the same bytes as attention of its thirds", "[host]") {
  const std::int64_t tokens = GENERATE(1, 33, 70), heads = GENERATE(1, 3);
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  HostAttentionOptions options{.causal = GENERATE(true, false), .scale = 0.3, .dropout = 0.2};
  if (GENERATE(false, true)) options.query_segment_bc = options.key_segment_be = segments_for(tokens);
  torch::manual_seed(8);
  const auto x_bcd = torch::randn({2, tokens, 3 * heads * 20}).to(type), dt_bcd = torch::randn({2, tokens, heads * 20});
  StepPasses passes(5, torch::kCPU);
  passes.set_step(1);
  const bool has_sinks = GENERATE(false, true);
  const auto answer = [&](auto attend) -> std::vector<torch::Tensor> {
    auto pass = passes.pass(0);
    pass.training = true;
    std::vector<torch::Tensor> leaves = {x_bcd.clone().requires_grad_()};
    if (has_sinks) leaves.push_back(torch::linspace(-1, 1, heads).requires_grad_());
    const auto t_bcd = attend(leaves[0], has_sinks ? leaves[1] : torch::Tensor(), pass);
    auto all = torch::autograd::grad({t_bcd}, leaves, {dt_bcd.to(type)});
    all.push_back(t_bcd);
    return all;
  };
  const auto given = answer([&](const torch::Tensor& projected_bcd, const torch::Tensor& sink_n, Pass& pass) {
    REQUIRE(can_attend_on_host(projected_bcd));
    return host_attention(projected_bcd, heads, options, pass, sink_n);
  });
  const auto expected = answer([&](const torch::Tensor& projected_bcd, const torch::Tensor& sink_n, Pass& pass) {
    const auto [q, k, v] = thirds_bnck(projected_bcd, heads);
    return merge_heads(host_attention(q, k, v, options, pass, {}, sink_n));
  });
  REQUIRE(given.size() == expected.size());
  for (std::size_t i = 0; i < given.size(); ++i) CHECK(torch::equal(given[i], expected[i]));
}

TEST_CASE("attention with every instruction set equals the formula", "[host]") {
  const auto code = GENERATE(VectorCode::plain, VectorCode::avx2, VectorCode::avx512, VectorCode::avx512_bf16);
  if (code > widest_vector_code()) return skip("this CPU lacks the instruction set");
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  const double tolerance = type == torch::kFloat ? 3e-6 : 0.01;  // bfloat16 rounds to 2^-9
  constexpr std::int64_t queries = 75, keys = 105, width = 40;
  auto problem = draw_last(queries, keys, width, false, type);
  problem.options = {.causal = true, .window = 50, .scale = 0.25};
  draw_distances(problem);
  problem.dt.select(0, 0).zero_();  // the gradient of distances is a sum over the batch
  const auto truth = by_formula(problem);
  const auto one = [](const torch::Tensor& x) { return x.select(0, 1).select(0, 2).contiguous(); };
  const auto q = one(problem.q), k = one(problem.k), v = one(problem.v), dt = one(problem.dt);
  const auto t = torch::empty_like(q), dq = torch::empty_like(q), dk = torch::empty_like(k), dv = torch::empty_like(v);
  const auto distance_q = one(problem.distances.q_bnck), ddistance_q = torch::empty_like(q);
  const auto distance = problem.distances.key_nlk[2].contiguous(), ddistance = torch::empty_like(distance);
  const auto rows = [&](const torch::Tensor& x) { return HeadRows{x.data_ptr(), width, width}; };
  std::vector<float> log_sum(queries);
  const HeadAttention head{.bf16 = type == torch::kBFloat16,
                           .causal = true,
                           .queries = queries,
                           .keys = keys,
                           .offset = keys - queries,
                           .window = 50,
                           .scale = 0.25f,
                           .q = rows(q),
                           .k = rows(k),
                           .v = rows(v),
                           .t = rows(t),
                           .log_sum = log_sum.data(),
                           .distance_q = rows(distance_q),
                           .distance = rows(distance),
                           .distances = keys,
                           .dt = rows(dt),
                           .dq = rows(dq),
                           .dk = rows(dk),
                           .dv = rows(dv),
                           .ddistance_q = rows(ddistance_q),
                           .ddistance = rows(ddistance)};
  HeadWorkspace room;
  attend_forward(head, room, code);
  attend_backward(head, room, code);
  check_near({t, dq, dk, dv, ddistance_q, ddistance},
             {one(truth[0]), one(truth[1]), one(truth[2]), one(truth[3]), one(truth[4]), truth[5][2]}, tolerance);
}

TEST_CASE("shapes and types that the host's attention does not support are refused", "[host]") {
  const auto x = torch::randn({1, 2, 6, 8});
  CHECK(can_attend_on_host(x, x, x));
  CHECK_FALSE(can_attend_on_host(x.narrow(2, 5, 1), x, x));  // few queries, many keys
  const auto longer = torch::randn({1, 2, 40, 8});
  CHECK(can_attend_on_host(longer.narrow(2, 20, 20), longer, longer));
  CHECK_FALSE(can_attend_on_host(longer, longer.narrow(2, 20, 20), longer.narrow(2, 20, 20)));
  CHECK_FALSE(can_attend_on_host(x.to(torch::kDouble), x.to(torch::kDouble), x.to(torch::kDouble)));
  const auto far = torch::empty({1, 1, longest_host_attention + 1, 8});
  CHECK_FALSE(can_attend_on_host(far, far, far));
}

}  // namespace metaformer::test_host_attention
