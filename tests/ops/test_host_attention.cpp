// Attention on the CPU by our own kernel, against the formula in float64, for every instruction set that this CPU has.

#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "ops/heads.h"
#include "ops/host_attention.h"
#include "ops/host_attention_kernel.h"
#include "ops/parallel.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

struct Problem {
  torch::Tensor q, k, v, dt;
  HostAttentionOptions options;
  bool shared = false;
};

torch::Tensor visible_bce(const HostAttentionOptions& options, std::int64_t batch, std::int64_t tokens) {
  auto visible = torch::ones({batch, tokens, tokens}, torch::kBool);
  if (options.causal) visible = visible.tril();
  if (!options.segment_bc.defined()) return visible;
  const auto query = options.segment_bc.unsqueeze(2);
  return visible.logical_and(query == options.segment_bc.unsqueeze(1)).logical_and(query >= 0);
}

// softmax(scale q k^T) v over what is visible, as written; zeros where nothing is. `kept`: what dropout leaves.
torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const HostAttentionOptions& options, const torch::Tensor& kept = torch::ones({})) {
  const auto hidden = visible_bce(options, q.size(0), q.size(2)).unsqueeze(1).logical_not();
  const auto score = (torch::matmul(q, k.transpose(2, 3)) * options.scale).masked_fill(hidden, -INFINITY);
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

struct Answer {
  torch::Tensor t, dq, dk, dv;  // dk holds the gradient of a shared tensor
};

template <class Attend>
Answer answer(const Problem& problem, torch::ScalarType type, Attend attend) {
  const auto leaf = [&](const torch::Tensor& x) { return x.detach().to(type).requires_grad_(); };
  const auto q = leaf(problem.q), k = leaf(problem.k), v = problem.shared ? k : leaf(problem.v);
  const auto t = attend(q, k, v);
  t.backward(problem.dt.to(type));
  return {t.detach(), q.grad(), k.grad(), v.grad()};
}

Answer exact(const Problem& problem) {
  return answer(problem, torch::kDouble,
                [&](const auto& q, const auto& k, const auto& v) { return attention(q, k, v, problem.options); });
}

Answer ours(const Problem& problem) {
  return answer(problem, problem.q.scalar_type(), [&](const auto& q, const auto& k, const auto& v) {
    REQUIRE(can_attend_on_host(q, k, v));
    Pass pass;
    return host_attention(q, k, v, problem.options, pass);
  });
}

double error(const torch::Tensor& a, const torch::Tensor& b) {
  return ((a.to(torch::kDouble) - b).norm() / b.norm()).item<double>();
}

void check_near(const Answer& given, const Answer& expected, double tolerance) {
  CHECK(error(given.t, expected.t) < tolerance);
  CHECK(error(given.dq, expected.dq) < tolerance);
  CHECK(error(given.dk, expected.dk) < tolerance);
  CHECK(error(given.dv, expected.dv) < tolerance);
}

// Two documents and padding at the end of one row, padding alone in the other.
torch::Tensor segments_for(std::int64_t tokens) {
  auto segments = torch::full({2, tokens}, -1, torch::kLong);
  segments.narrow(0, 0, 1).narrow(1, 0, tokens / 2).fill_(0);
  segments.narrow(0, 0, 1).narrow(1, tokens / 2, tokens / 3).fill_(1);
  return segments;
}

}  // namespace

TEST_CASE("attention on the host is the formula's, at every length and width", "[host]") {
  const std::int64_t tokens = GENERATE(2, 31, 32, 33, 64, 70, 129), width = GENERATE(1, 8, 16, 24, 33, 64);
  const bool causal = GENERATE(true, false), shared = GENERATE(false, true);
  auto problem = draw_problem(tokens, width, width, shared);
  problem.options.causal = causal;
  INFO(tokens << " tokens, width " << width << (causal ? " causal" : "") << (shared ? " shared" : ""));
  check_near(ours(problem), exact(problem), 3e-6);
}

TEST_CASE("a token that sees itself alone takes its value, and its score has no gradient", "[host]") {
  auto problem = draw_problem(1, 24, 24, false);
  problem.options.causal = GENERATE(true, false);
  const auto given = ours(problem);
  CHECK(torch::allclose(given.t, problem.v, 1e-6, 1e-6));
  CHECK(torch::allclose(given.dv, problem.dt, 1e-6, 1e-6));  // backward computes the weight of 1 anew
  // 0 but for the rounding of dt . v, which is subtracted from itself.
  const double rounding = 24 * 0x1p-23 * (problem.dt.norm() * problem.v.norm() * problem.k.norm()).item<double>();
  CHECK(given.dq.norm().item<double>() < rounding);
  CHECK(given.dk.norm().item<double>() < rounding);
}

TEST_CASE("attention on the host knows segments and padding", "[host]") {
  const std::int64_t tokens = GENERATE(12, 65, 100);
  const bool causal = GENERATE(true, false), shared = GENERATE(false, true);
  auto problem = draw_problem(tokens, 16, 16, shared);
  problem.options.causal = causal;
  problem.options.segment_bc = segments_for(tokens);
  const auto given = ours(problem);
  check_near(given, exact(problem), 3e-6);
  CHECK(given.t.select(0, 1).abs().max().item<float>() == 0);
  CHECK(given.dq.select(0, 1).abs().max().item<float>() == 0);
}

TEST_CASE("padding behind a row changes none of its bits and gets zeros", "[host]") {
  const std::int64_t tokens = GENERATE(1, 31, 64, 77), padding = GENERATE(1, 32, 50);
  const bool causal = GENERATE(true, false), shared = GENERATE(false, true);
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  auto padded = draw_problem(tokens + padding, 24, 24, shared, type);
  padded.options.causal = causal;
  padded.options.segment_bc =
      torch::cat({torch::full({2, tokens}, 3, torch::kLong), torch::full({2, padding}, -1, torch::kLong)}, 1);
  auto bare = padded;
  for (auto* x : {&bare.q, &bare.k, &bare.v, &bare.dt}) *x = x->narrow(2, 0, tokens);
  if (shared) bare.v = bare.k;
  bare.options.segment_bc = torch::Tensor();
  const auto given = ours(padded), expected = ours(bare);
  const auto check = [&](const torch::Tensor& x, const torch::Tensor& without) {
    CHECK(torch::equal(x.narrow(2, 0, tokens), without));
    CHECK(x.narrow(2, tokens, padding).abs().max().item<float>() == 0);
  };
  check(given.t, expected.t);
  check(given.dq, expected.dq);
  check(given.dk, expected.dk);
  if (!shared) check(given.dv, expected.dv);
}

TEST_CASE("values may be of another width than keys", "[host]") {
  auto problem = draw_problem(50, 40, 8, false);
  problem.options.causal = true;
  check_near(ours(problem), exact(problem), 3e-6);
}

TEST_CASE("in bfloat16 attention on the host is at most twice as far from the truth as eager products", "[host]") {
  const bool shared = GENERATE(false, true);
  auto problem = draw_problem(90, 32, 32, shared, torch::kBFloat16);
  problem.options.causal = true;
  const auto truth = exact(problem), given = ours(problem);
  const auto eager = answer(problem, torch::kBFloat16, [&](const auto& q, const auto& k, const auto& v) {
    return attention(q, k, v, problem.options);
  });
  CHECK(error(given.t, truth.t) <= 2 * error(eager.t, truth.t));
  CHECK(error(given.dq, truth.dq) <= 2 * error(eager.dq, truth.dq));
  CHECK(error(given.dk, truth.dk) <= 2 * error(eager.dk, truth.dk));
  CHECK(error(given.dv, truth.dv) <= 2 * error(eager.dv, truth.dv));
}

TEST_CASE("a loop over heads runs on every thread", "[host]") {
  const auto threads = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex lock;
  std::set<std::thread::id> seen;
  at::parallel_for(0, 64, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard guard(lock);
    seen.insert(std::this_thread::get_id());
  });
  at::set_num_threads(threads);
  CHECK(seen.size() == 2);
}

TEST_CASE("the number of threads changes no bit of attention on the host", "[host]") {
  auto problem = draw_problem(70, 24, 24, true);
  problem.options.causal = true;
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = ours(problem);
  at::set_num_threads(3);
  const auto three = ours(problem);
  at::set_num_threads(threads);
  CHECK(torch::equal(one.t, three.t));
  CHECK(torch::equal(one.dq, three.dq));
  CHECK(torch::equal(one.dk, three.dk));
}

TEST_CASE("scores far from 0 overflow nothing on the host, and NaN reaches what sees it alone", "[host]") {
  auto problem = draw_problem(40, 16, 16, false);
  problem.options.causal = true;
  problem.options.scale = 300;
  const auto large = ours(problem);
  CHECK(large.t.isfinite().all().item<bool>());
  CHECK(large.dq.isfinite().all().item<bool>());
  CHECK(error(large.t, exact(problem).t) < 1e-3);
  problem.options.scale = 0.3;
  problem.k.index_put_({0, 0, 20, 3}, std::nan(""));
  const auto t = ours(problem).t;
  CHECK(t.select(0, 1).isfinite().all().item<bool>());
  CHECK(t.index({0, 0, torch::indexing::Slice(0, 20)}).isfinite().all().item<bool>());
  CHECK(t.index({0, 0, torch::indexing::Slice(20)}).isnan().all().item<bool>());
}

TEST_CASE("dropout on the host takes its share of the weights, in forward and backward alike", "[host]") {
  constexpr std::int64_t tokens = 70;
  constexpr double dropout = 0.3;
  auto problem = draw_problem(tokens, 16, 16, false);
  problem.options.causal = GENERATE(true, false);
  auto dropping = problem.options;
  dropping.dropout = dropout;
  StepPasses passes(5, 1, torch::kCPU);
  passes.set_step(1);
  const auto attend = [&](const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    auto pass = passes.pass(0);
    return host_attention(q, k, v, dropping, pass);
  };
  // With values that are an identity the result is the weights themselves.
  const auto identity = torch::eye(tokens).expand({2, 3, tokens, tokens}).contiguous();
  const auto dropped = attend(problem.q, problem.k, identity);
  Pass evaluation;
  const auto whole = host_attention(problem.q, problem.k, identity, dropping, evaluation);
  const auto mask = (dropped != 0).logical_or(whole == 0);
  const double share = (mask.logical_not().sum() / (whole != 0).sum()).item<double>();
  CHECK(share == Approx(dropout).margin(0.02));
  CHECK_FALSE(torch::equal(mask.select(1, 0), mask.select(1, 1)));  // heads draw by themselves
  CHECK_FALSE(torch::equal(mask.select(0, 0), mask.select(0, 1)));
  const auto truth = answer(problem, torch::kDouble, [&](const auto& q, const auto& k, const auto& v) {
    return attention(q, k, v, dropping, mask);
  });
  check_near(answer(problem, torch::kFloat, attend), truth, 3e-6);
  passes.set_step(2);
  CHECK_FALSE(torch::equal(attend(problem.q, problem.k, identity), dropped));
}

TEST_CASE("attention of a projection has the bytes of attention of its thirds", "[host]") {
  const std::int64_t tokens = GENERATE(1, 33, 70), heads = GENERATE(1, 3);
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  HostAttentionOptions options{.causal = GENERATE(true, false), .scale = 0.3, .dropout = 0.2};
  if (GENERATE(false, true)) options.segment_bc = segments_for(tokens);
  torch::manual_seed(8);
  const auto x_bcd = torch::randn({2, tokens, 3 * heads * 20}).to(type), dt_bcd = torch::randn({2, tokens, heads * 20});
  StepPasses passes(5, 1, torch::kCPU);
  passes.set_step(1);
  const auto answer = [&](auto attend) {
    auto pass = passes.pass(0);
    pass.training = true;
    const auto projected_bcd = x_bcd.clone().requires_grad_();
    const auto t_bcd = attend(projected_bcd, pass);
    return std::pair(t_bcd, torch::autograd::grad({t_bcd}, {projected_bcd}, {dt_bcd.to(type)}).front());
  };
  const auto [t_bcd, dprojected_bcd] = answer([&](const torch::Tensor& projected_bcd, Pass& pass) {
    REQUIRE(can_attend_on_host(projected_bcd));
    return host_attention(projected_bcd, heads, options, pass);
  });
  const auto [expected_bcd, dexpected_bcd] = answer([&](const torch::Tensor& projected_bcd, Pass& pass) {
    const auto [q, k, v] = thirds_bnck(projected_bcd, heads);
    return merge_heads(host_attention(q, k, v, options, pass));
  });
  CHECK(torch::equal(t_bcd, expected_bcd));
  CHECK(torch::equal(dprojected_bcd, dexpected_bcd));
}

TEST_CASE("every instruction set gives the formula", "[host]") {
  const auto code = GENERATE(VectorCode::plain, VectorCode::avx2, VectorCode::avx512, VectorCode::avx512_bf16);
  if (code > widest_vector_code()) return;  // nothing of it runs on such a CPU
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  const double tolerance = type == torch::kFloat ? 3e-6 : 0.01;  // bfloat16 rounds to 2^-9
  constexpr std::int64_t tokens = 75, width = 40;
  auto problem = draw_problem(tokens, width, width, false, type);
  problem.options.causal = true;
  problem.options.scale = 0.25;
  const auto truth = exact(problem);
  const auto one = [](const torch::Tensor& x) { return x.select(0, 1).select(0, 2).contiguous(); };
  const auto q = one(problem.q), k = one(problem.k), v = one(problem.v), dt = one(problem.dt);
  const auto t = torch::empty_like(q), dq = torch::empty_like(q), dk = torch::empty_like(q), dv = torch::empty_like(q);
  const auto rows = [&](const torch::Tensor& x) { return HeadRows{x.data_ptr(), width, width}; };
  std::vector<float> log_sum(tokens);
  const HeadAttention head{.bf16 = type == torch::kBFloat16,
                           .causal = true,
                           .tokens = tokens,
                           .scale = 0.25f,
                           .q = rows(q),
                           .k = rows(k),
                           .v = rows(v),
                           .t = rows(t),
                           .log_sum = log_sum.data(),
                           .dt = rows(dt),
                           .dq = rows(dq),
                           .dk = rows(dk),
                           .dv = rows(dv)};
  HeadWorkspace room;
  attend_forward(head, room, code);
  attend_backward(head, room, code);
  CHECK(error(t, one(truth.t)) < tolerance);
  CHECK(error(dq, one(truth.dq)) < tolerance);
  CHECK(error(dk, one(truth.dk)) < tolerance);
  CHECK(error(dv, one(truth.dv)) < tolerance);
}

TEST_CASE("what the host's attention cannot do is left to the library", "[host]") {
  const auto x = torch::randn({1, 2, 6, 8});
  CHECK(can_attend_on_host(x, x, x));
  CHECK_FALSE(can_attend_on_host(x.narrow(2, 5, 1), x, x));
  CHECK_FALSE(can_attend_on_host(x.to(torch::kDouble), x.to(torch::kDouble), x.to(torch::kDouble)));
  const auto far = torch::empty({1, 1, longest_host_attention + 1, 8});
  CHECK_FALSE(can_attend_on_host(far, far, far));
}

}  // namespace metaformer
