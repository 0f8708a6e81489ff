// Mixers with the fused backend on the emulated kernels: the same values and gradients as the reference backend, for
// every parameterisation, mask and narrow type.

#include <ATen/autocast_mode.h>

#include "attention/kernel_choice.h"
#include "attention/mixer.h"
#include "attention/score_attention.h"
#include "bench/attention_bench.h"
#include "config/mixer_config.h"
#include "cuda/metric_attention.h"
#include "ops/fused_metric.h"
#include "support/failure.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

constexpr std::int64_t batch = 2, tokens = 37, heads = 2, width = 32;

// Every mixer that has the kernels.
std::vector<MixerConfig> fused_mixers() {
  std::vector<MixerConfig> list = {QuadraticOptions{}};
  for (const auto constraint :
       {MetricConstraint::symmetric, MetricConstraint::psd, MetricConstraint::diagonal, MetricConstraint::identity}) {
    list.push_back(MetricOptions{.constraint = constraint});
    if (constraint != MetricConstraint::symmetric)
      list.push_back(MetricOptions{.constraint = constraint, .score = MetricScore::distance});
  }
  list.push_back(QuadraticOptions{.values = MixerValues::own, .qk_norm = true});
  list.push_back(MetricOptions{.values = MixerValues::own, .qk_norm = true});
  list.push_back(MetricOptions{.values = MixerValues::unnormalised, .qk_norm = true});
  list.push_back(
      MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance, .values = MixerValues::own});
  return list;
}

bool has_own_values(const MixerConfig& mixer) {
  const auto is_own = []<class Options>(const Options& options) {
    if constexpr (requires { options.values; }) return options.values != MixerValues::shared;
    return false;
  };
  return std::visit(is_own, mixer);
}

// y, the gradients of x and of every parameter, and of the separate context if there is one.
using Outcome = std::vector<torch::Tensor>;

// Runs with the same parameters, input and output gradient for every backend. `others`: the number of tokens of a
// separate context; 0: the context is the input.
Outcome run(const MixerConfig& options, Backend backend, const Visibility& visibility, torch::ScalarType type,
            double dropout = 0, std::int64_t others = 0) {
  torch::manual_seed(3);
  const auto mixer =
      make_mixer(with_backend(options, backend), {.width = width, .heads = heads, .dropout = dropout, .bias = false});
  torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.add_(0.3 * torch::randn_like(parameter));
  mixer->to(type);
  auto x = torch::randn({batch, tokens, width}).to(type).requires_grad_();
  const auto dy = torch::randn({batch, tokens, width}).to(type);
  auto context = others > 0 ? torch::randn({batch, others, width}).to(type).requires_grad_() : x;
  torch::AutoGradMode with_grad(true);
  Pass pass{.training = true, .random = RandomStream(torch::ones({}, torch::kLong))};
  const auto y = mixer->forward(x, context, visibility, nullptr, pass);
  y.backward(dy);
  Outcome outcome = {y.detach(), x.grad()};
  for (const auto& parameter : mixer->parameters()) outcome.push_back(parameter.grad());
  if (others > 0) outcome.push_back(context.grad());
  return outcome;
}

void check_near(const Outcome& fused, const Outcome& expected, double tolerance) {
  REQUIRE(fused.size() == expected.size());
  for (std::size_t i = 0; i < fused.size(); ++i) {
    REQUIRE(fused[i].sizes() == expected[i].sizes());
    CHECK(relative_error(fused[i], expected[i]) < tolerance);
  }
}

void check_fused(const MixerConfig& options, const Visibility& visibility, double tolerance, double dropout = 0,
                 std::int64_t others = 0) {
  check_near(run(options, Backend::fused, visibility, torch::kFloat, dropout, others),
             run(options, Backend::reference, visibility, torch::kDouble, dropout, others), tolerance);
}

// The error is at most twice that of `other`.
void check_no_worse(const Outcome& fused, const Outcome& other, const Outcome& exact) {
  REQUIRE(fused.size() == exact.size());
  for (std::size_t i = 0; i < fused.size(); ++i)
    CHECK(relative_error(fused[i], exact[i]) <= 2 * relative_error(other[i], exact[i]));
}

Visibility segments_of(bool causal) {
  auto segments = torch::arange(tokens).div(9, "floor").repeat({batch, 1});
  segments.index_put_({1, torch::indexing::Slice(30, torch::indexing::None)}, -1);
  return self_visibility(causal, segments);
}

}  // namespace

TEST_CASE("the fused backend gives the values and gradients of the reference, and drops the same weights", "[fused]") {
  const auto options = GENERATE(from_range(fused_mixers()));
  const auto [causal, dropout] = GENERATE(table<bool, double>({{true, 0}, {false, 0}, {true, 0.4}}));
  const auto visibility = GENERATE(false, true) ? segments_of(causal) : self_visibility(causal, {});
  check_fused(options, visibility, 2e-5, dropout);
}

TEST_CASE("the form for the kernels includes the temperature and the fixed norm", "[fused]") {
  using M = MetricOptions;
  constexpr auto identity = MetricConstraint::identity;
  constexpr auto distance = MetricScore::distance;
  const MixerConfig options = GENERATE(
      values<MixerConfig>({QuadraticOptions{.qk_norm = true, .learned_temperature = true, .fixed_norm = true},
                           M{.qk_norm = true, .learned_temperature = true, .fixed_norm = true},
                           M{.constraint = identity, .qk_norm = true, .learned_temperature = true},
                           M{.constraint = identity, .score = distance, .qk_norm = true, .learned_temperature = true},
                           M{.constraint = MetricConstraint::psd, .score = distance, .fixed_norm = true},
                           M{.constraint = MetricConstraint::diagonal, .score = distance, .fixed_norm = true}}));
  // The gradient under a fixed norm is a difference of larger terms, and that of a temperature is a sum over its head.
  check_fused(options, segments_of(/*causal=*/true), 1e-4);
}

TEST_CASE("in a narrow type the error of the fused backend is at most twice that of the reference", "[fused]") {
  const auto options = GENERATE(from_range(fused_mixers()));
  const auto type = GENERATE(torch::kBFloat16, torch::kHalf);
  const auto visibility = self_visibility(true, {});
  const auto exact = run(options, Backend::reference, visibility, torch::kDouble),
             eager = run(options, Backend::reference, visibility, type),
             fused = run(options, Backend::fused, visibility, type);
  check_no_worse(fused, eager, exact);
}

TEST_CASE("the fused backend works under autocast, with gradients in the type of the parameters", "[fused]") {
  const auto options = GENERATE(from_range(fused_mixers()));
  const auto visibility = self_visibility(true, {});
  const auto exact = run(options, Backend::reference, visibility, torch::kDouble);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
  const auto composed = run(options, Backend::composed, visibility, torch::kFloat),
             fused = run(options, Backend::fused, visibility, torch::kFloat);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  for (std::size_t i = 2; i < fused.size(); ++i) CHECK(fused[i].scalar_type() == torch::kFloat);
  check_no_worse(fused, composed, exact);
}

TEST_CASE("backend auto uses the kernels where they are expected to win", "[fused]") {
  const auto options = GENERATE(from_range(fused_mixers()));
  const auto visibility = self_visibility(true, {});
  const auto fused = run(options, Backend::fused, visibility, torch::kBFloat16, 0.2),
             taken = run(options, Backend::automatic, visibility, torch::kBFloat16, 0.2);
  CHECK(torch::equal(fused[0], taken[0]));
  CHECK(torch::equal(fused[1], taken[1]));
}

TEST_CASE("the kernels compute attention to a separate context, with gradients of both sequences", "[fused]") {
  const auto options = GENERATE(from_range(fused_mixers()));
  const std::int64_t others = GENERATE(11, 60);
  auto visibility = Visibility{.causal = GENERATE(false, true)};
  if (GENERATE(false, true)) {
    visibility.query_segment_bc = torch::arange(tokens).remainder(3).repeat({batch, 1});
    visibility.key_segment_be = torch::arange(others).remainder(4).sub(1).repeat({batch, 1});
  }
  // With a causal mask a query sees few of the 11 keys. The score of a single visible key has the gradient 0, which the
  // kernels compute as a difference of two products. Its rounding error has more weight if p has no other gradient.
  const double tolerance = has_own_values(options) ? 8e-5 : 4e-5;
  check_fused(options, visibility, others == 11 ? tolerance : 2e-5, 0.2, others);
}

// The call of attend() on a GPU, against the whole matrix of weights with the same dropout.
TEST_CASE("scaled dot product attention by the kernels and its gradients equal those by scores", "[fused]") {
  const std::int64_t keys = GENERATE(37, 60);
  const auto [causal, dropout] = GENERATE(table<bool, double>({{true, 0.3}, {false, 0.3}, {true, 0}}));
  Visibility visibility{.causal = causal};
  if (GENERATE(false, true)) {
    visibility.query_segment_bc = torch::arange(tokens).remainder(3).repeat({batch, 1});
    visibility.key_segment_be = torch::arange(keys).remainder(4).sub(1).repeat({batch, 1});
  }
  torch::manual_seed(5);
  const auto q = torch::randn({batch, heads, tokens, 16}), k = torch::randn({batch, heads, keys, 16}),
             v = torch::randn({batch, heads, keys, 16}), dt = torch::randn({batch, heads, tokens, 16});
  const ScoreMixing mixing{.scale = 0.25, .dropout = dropout};
  const auto outcome = [&](torch::ScalarType type, const auto& attend) {
    const auto leaf = [&](const torch::Tensor& x) { return x.to(type, /*non_blocking=*/false, true).requires_grad_(); };
    const MetricVectors vectors{leaf(q), leaf(k), leaf(v)};
    Pass pass{.training = true, .random = RandomStream(torch::ones({}, torch::kLong))};
    const auto t = attend(vectors, pass);
    t.backward(dt.to(type));
    return Outcome{t.detach(), vectors.p_bnck.grad(), vectors.keys_bnek.grad(), vectors.value_bnek.grad()};
  };
  const auto by_kernels = outcome(torch::kFloat, [&](const MetricVectors& vectors, Pass& pass) {
    CHECK(take_scaled_dot_product(vectors, visibility, dropout > 0) == (dropout > 0 || visibility.has_segments()));
    return fused_metric_attention(vectors, {},
                                  {.causal = causal,
                                   .query_segment_bc = visibility.query_segment_bc,
                                   .key_segment_be = visibility.key_segment_be,
                                   .scale = mixing.scale,
                                   .dropout = dropout},
                                  pass);
  });
  const auto by_scores = outcome(torch::kDouble, [&](const MetricVectors& vectors, Pass& pass) {
    const auto score_bnce = torch::matmul(vectors.p_bnck, vectors.keys_bnek.transpose(2, 3));
    return mix_by_scores(score_bnce, vectors.p_bnck, vectors.value_bnek, visibility, mixing, pass);
  });
  check_near(by_kernels, by_scores, 2e-5);
}

// The forms and values that have it, with segments, dropout and the gradients of every input.
TEST_CASE("the short backward pass is as accurate as the usual one, after the same forward pass", "[fused]") {
  const auto type = GENERATE(torch::kBFloat16, torch::kHalf);
  const auto form = GENERATE(cuda::MetricForm::dense, cuda::MetricForm::diagonal, cuda::MetricForm::identity);
  const bool own_values = GENERATE(false, true);
  const auto visibility = segments_of(/*causal=*/GENERATE(false, true));
  torch::manual_seed(7);
  const auto draw = [&](const std::vector<std::int64_t>& sizes) { return torch::randn(sizes).to(type); };
  const auto p = draw({batch, heads, tokens, 16}), v = draw({batch, heads, tokens, 16}),
             dt = draw({batch, heads, tokens, 16});
  const bool dense = form == cuda::MetricForm::dense;
  const auto metric = draw(dense ? std::vector<std::int64_t>{heads, 16, 16} : std::vector<std::int64_t>{heads, 16});
  const auto outcome = [&](torch::ScalarType in, bool short_backward) {
    const auto leaf = [&](const torch::Tensor& x) { return x.to(in, /*non_blocking=*/false, true).requires_grad_(); };
    const auto leaf_p = leaf(p), leaf_v = leaf(v), leaf_metric = leaf(metric);
    const MetricVectors vectors{leaf_p, leaf_p, own_values ? leaf_v : torch::Tensor()};
    CHECK(has_short_backward(vectors, /*distance=*/false) == (in == type));
    CHECK_FALSE(has_short_backward(vectors, /*distance=*/true));
    CHECK_FALSE(has_short_backward({leaf_p, leaf(p), vectors.value_bnek}, /*distance=*/false));
    Pass pass{.training = true, .random = RandomStream(torch::ones({}, torch::kLong))};
    const auto t = fused_metric_attention(vectors, form == cuda::MetricForm::identity ? torch::Tensor() : leaf_metric,
                                          {.causal = visibility.causal,
                                           .query_segment_bc = visibility.query_segment_bc,
                                           .key_segment_be = visibility.key_segment_be,
                                           .scale = 0.25,
                                           .dropout = 0.2,
                                           .short_backward = short_backward},
                                          pass);
    t.backward(dt.to(in));
    Outcome of = {t.detach(), leaf_p.grad()};
    if (own_values) of.push_back(leaf_v.grad());
    if (form != cuda::MetricForm::identity) of.push_back(leaf_metric.grad());
    return of;
  };
  const auto exact = outcome(torch::kFloat, false), usual = outcome(type, false), by_short = outcome(type, true);
  CHECK(torch::equal(by_short[0], usual[0]));
  check_no_worse(by_short, usual, exact);
}

TEST_CASE("without a short backward pass for the vectors the usual one is taken", "[fused]") {
  const auto outcome = [](bool short_backward) {
    torch::manual_seed(7);
    const auto p = torch::randn({1, 2, 40, 16}).requires_grad_();  // in float32
    Pass pass;
    fused_metric_attention({p, p, {}}, {}, {.causal = true, .short_backward = short_backward}, pass).sum().backward();
    return p.grad();
  };
  CHECK(torch::equal(outcome(true), outcome(false)));
}

TEST_CASE("a sequence in parts with a cache equals the whole sequence", "[fused]") {
  const auto options = GENERATE(from_range(fused_mixers()));
  torch::manual_seed(3);
  const auto mixer = make_mixer(with_backend(options, Backend::fused), {.width = width, .heads = heads});
  const torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.add_(0.3 * torch::randn_like(parameter));
  const auto x = torch::randn({batch, tokens, width});
  Pass pass;
  const auto whole = mixer->forward(x, x, self_visibility(true, {}), nullptr, pass);
  MixerState state(tokens);
  std::int64_t first = 0;
  for (const std::int64_t count : {20, 1, 16}) {
    const auto part = x.narrow(1, first, count);
    const auto y = mixer->forward(part, part, self_visibility(true, {}), &state, pass);
    CHECK(relative_error(y, whole.narrow(1, first, count)) < 2e-6);
    first += count;
  }
}

TEST_CASE("the kernels refuse segments that do not cover every token", "[fused]") {
  const auto p = torch::randn({1, 1, 4, 16}), keys = torch::randn({1, 1, 9, 16});
  const auto four = torch::zeros({1, 4}, torch::kLong), nine = torch::zeros({1, 9}, torch::kLong);
  Pass pass;
  const auto attend = [&](const torch::Tensor& of_queries, const torch::Tensor& of_keys) {
    return fused_metric_attention({p, keys, {}}, {}, {.query_segment_bc = of_queries, .key_segment_be = of_keys}, pass);
  };
  CHECK_NOTHROW(attend(four, nine));
  CHECK_THROWS_WITH(attend(four, four), Mentions("segment|query|key"));
  CHECK_THROWS_WITH(attend(nine, nine), Mentions("segment|query|key"));
}

TEST_CASE("an input that the kernels do not support is an error with the reason", "[fused]") {
  Pass pass;
  const auto complaint = [&](const torch::Tensor& p) {
    return message_of(ExitCode::usage, [&] { fused_metric_attention({p, p, {}}, {}, {.causal = true}, pass); });
  };
  CHECK_THAT(complaint(torch::randn({1, 1, 4, 100})), ContainsSubstring("head width 100 "));
  CHECK_THAT(complaint(torch::randn({1, 1, 4, 16}, torch::kDouble)), ContainsSubstring("Double"));
  CHECK_THAT(complaint(torch::randn({1, 1, 16, 4}).transpose(2, 3)), ContainsSubstring("next to each other"));
  const auto p = torch::randn({1, 1, 4, 16}).requires_grad_();
  const auto t = fused_metric_attention({p, p, {}}, {}, {.causal = true}, pass);
  CHECK_THROWS_WITH(torch::autograd::grad({t.sum()}, {p}, {}, true, /*create_graph=*/true),
                    ContainsSubstring("no second derivatives"));
  CHECK_THAT(fused_metric_obstacle({p, torch::randn({1, 1, 0, 16}), {}}, {}), ContainsSubstring("no keys"));
  CHECK_THAT(fused_metric_obstacle({p, torch::randn({1, 1, 5, 16}, torch::kBFloat16), {}}, {}),
             ContainsSubstring("type"));
  CHECK_THAT(fused_metric_obstacle({p, p, torch::randn({1, 1, 5, 16})}, {}), ContainsSubstring("size"));
  const auto wide = torch::randn({1, 1, 4, 128}), narrow = wide.to(torch::kBFloat16);
  CHECK_THAT(fused_metric_obstacle({wide, wide, wide}, {}), ContainsSubstring("96"));
  CHECK(fused_metric_obstacle({narrow, narrow, narrow}, {}).empty());
  const auto mixer = make_mixer(MetricOptions{.backend = Backend::fused}, {.width = width, .heads = heads});
  const torch::NoGradGuard no_grad;
  mixer->named_parameters()["packed_metric"].flatten()[5].fill_(std::nan(""));
  const auto x = torch::randn({1, 4, width});
  CHECK_THAT(message_of(ExitCode::diverged, [&] { mixer->forward(x, x, self_visibility(true, {}), nullptr, pass); }),
             Mentions("metric|not finite"));
}

TEST_CASE("the benchmark measures cores with the short backward pass, where there is one", "[fused]") {
  AttentionRequest request;
  request.shapes = {{.batch = 2, .heads = 2, .context = 40, .head_width = 16},
                    {.batch = 1, .heads = 1, .context = 260, .head_width = 16}};
  request.core = true;
  request.type = torch::kBFloat16;
  request.rounds = 1;
  request.short_backward = {QuadraticOptions{}, MetricOptions{.values = MixerValues::own},
                            MetricOptions{.constraint = MetricConstraint::identity}};
  for (const auto& result : bench_attention(request, [](const std::string&) {})) {
    CHECK(result.backend == "fused_short");
    CHECK(result.skipped.empty() == (result.shape.context == 40));
    CHECK((result.ms > 0) == (result.shape.context == 40));
  }
}

TEST_CASE("the benchmark measures the fused cores of all mixers that have kernels, and they are correct", "[fused]") {
  AttentionRequest request;
  request.shapes = {{.batch = 2, .heads = 2, .context = 40, .head_width = 16}};
  request.core = true;
  request.rounds = 1;
  NormalDraws draws(torch::kCPU);
  for (const auto& options : fused_mixers())
    if (draw_core_inputs(options, request.shapes.front(), draws))
      request.mixers.push_back(with_backend(options, Backend::fused));
  for (const auto& result : bench_attention(request, [](const std::string&) {})) {
    CHECK(result.backend == "fused");
    REQUIRE(result.error);
    CHECK(*result.error < 2e-5);
    CHECK(result.ms > 0);
  }
}

}  // namespace metaformer
