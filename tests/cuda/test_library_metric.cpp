// Metric attention by the library's attention with the emulated kernels around it, as a single node and in mixers: the
// errors of values and gradients, relative to float64, are at most twice those of composed operators in the same type.

#include <torch/autograd.h>

#include <cmath>
#include <set>

#include "attention/kernel_choice.h"
#include "attention/mixer.h"
#include "bench/attention_bench.h"
#include "config/mixer_config.h"
#include "ops/autocast.h"
#include "ops/library_metric.h"
#include "support/failure.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

using torch::Tensor;

// The result, then the gradients of all inputs.
using Outcome = std::vector<Tensor>;

double size_of(const Tensor& x) { return x.to(torch::kDouble).norm().item<double>(); }

double roundoff_of(torch::ScalarType type) { return type == torch::kBFloat16 ? 0x1p-9 : 0x1p-12; }

// The error of result `i` is at most twice that of `other` or the rounding of the type. For results that are 0 except
// for rounding, it may also be 1e-6 of the first result.
void check_no_worse(const Outcome& ours, const Outcome& other, const Outcome& exact, torch::ScalarType type,
                    std::size_t i) {
  CAPTURE(i);
  REQUIRE(ours[i].sizes() == exact[i].sizes());
  const auto error = [&](const Outcome& outcome) { return size_of(outcome[i].to(torch::kDouble) - exact[i]); };
  CHECK(error(ours) <= 2 * std::max(error(other), roundoff_of(type) * size_of(exact[i])) + 1e-6 * size_of(exact[0]));
}

// The same for the results from `first` on together, each relative to its size, because the error of a few numbers
// depends on chance.
void check_together_no_worse(const Outcome& ours, const Outcome& other, const Outcome& exact, torch::ScalarType type,
                             std::size_t first) {
  REQUIRE(ours.size() == exact.size());
  const auto error = [&](const Outcome& outcome) {
    double sum = 0;
    for (auto i = first; i < exact.size(); ++i) {
      REQUIRE(outcome[i].sizes() == exact[i].sizes());
      sum += std::pow(relative_error(outcome[i], exact[i]), 2);
    }
    return std::sqrt(sum);
  };
  CHECK(error(ours) <= 2 * std::max(error(other), roundoff_of(type)));
}

struct NodeCase {
  std::int64_t batch = 2, heads = 2, tokens = 37, width = 16;
  int form_dimensions = 3;  // 3: dense and not symmetric; 2: diagonal; 0: the identity
  bool normalised = true, has_gain = true;
  LibraryMetricOptions options{.own_values = true, .causal = true};
};

using Attend = std::function<Tensor(const Tensor& projected, const Tensor& gain, const Tensor& metric)>;

// Runs with the projection in `type`, and gain and metric in `weight_type`, the required type of their gradients.
Outcome run(const NodeCase& c, const Attend& attend, torch::ScalarType type, torch::ScalarType weight_type) {
  torch::manual_seed(5);
  const auto n = c.heads, k = c.width, features = n * k * (c.options.own_values ? 2 : 1);
  // Numbers that every type can store.
  const auto draw = [](const std::vector<std::int64_t>& sizes, double spread) {
    return (spread * torch::randn(sizes)).to(torch::kBFloat16).to(torch::kHalf);
  };
  const auto projected = draw({c.batch, c.tokens, features}, 1).to(type).requires_grad_();
  const auto dt = draw({c.batch, c.tokens, n * k}, 1).to(type);
  auto gain = draw({k}, 0.3).add(1), metric = draw({n, k, k}, 1 / std::sqrt(static_cast<double>(k)));
  if (c.form_dimensions == 2) metric = metric.diagonal(0, 1, 2).add(1);
  gain = c.normalised && c.has_gain ? gain.to(weight_type).requires_grad_() : Tensor();
  metric = c.form_dimensions > 0 ? metric.to(weight_type).contiguous().requires_grad_() : Tensor();
  const auto t = attend(projected, gain, metric);
  CHECK(t.scalar_type() == type);
  t.transpose(1, 2).flatten(2).backward(dt);
  Outcome outcome = {t.detach(), projected.grad()};
  for (const auto& weight : {gain, metric}) {
    if (!weight.defined()) continue;
    CHECK(weight.grad().scalar_type() == weight_type);
    outcome.push_back(weight.grad());
  }
  return outcome;
}

// In float64 by the formulas; in a narrow type by operators that round every result, around the library's attention.
Tensor composed(const NodeCase& c, const Tensor& projected, const Tensor& gain, const Tensor& metric) {
  const auto type = projected.scalar_type(), wide = type == torch::kDouble ? torch::kDouble : torch::kFloat;
  const auto parts = projected.unflatten(2, {-1, c.width}).transpose(1, 2).split(c.heads, 1);
  auto p = parts[0];
  if (c.normalised) {
    const auto x = p.to(wide);
    p = x * (x.square().mean(-1, true) + *c.options.norm_epsilon).rsqrt();
    p = (gain.defined() ? p * gain : p).to(type);
  }
  auto q = p;
  if (metric.defined()) q = metric.dim() == 3 ? torch::matmul(p, metric.to(type)) : p * metric.to(type).unsqueeze(1);
  const auto v = c.options.own_values ? parts[1] : p;
  if (type != torch::kDouble)
    return at::scaled_dot_product_attention(q, p, v, {}, /*dropout_p=*/0, c.options.causal, c.options.scale);
  auto score = torch::matmul(q, p.transpose(2, 3)) * c.options.scale;
  if (c.options.causal) score = score.masked_fill(torch::ones({c.tokens, c.tokens}, torch::kBool).triu(1), -INFINITY);
  return torch::matmul(torch::softmax(score, -1), v);
}

void check_node(NodeCase c) {
  c.options.heads = c.heads;
  c.options.scale = 1 / std::sqrt(static_cast<double>(c.width));
  if (c.normalised) c.options.norm_epsilon = 1e-6;
  INFO("c=" << c.tokens << " k=" << c.width << " form " << c.form_dimensions << (c.normalised ? " norm" : "")
            << (c.has_gain ? " gain" : "") << (c.options.own_values ? " own" : "")
            << (c.options.causal ? " causal" : ""));
  const Attend node = [&](const Tensor& projected, const Tensor& gain, const Tensor& metric) {
    return library_metric_attention(projected, gain, metric, c.options);
  };
  const Attend formulas = [&](const Tensor& projected, const Tensor& gain, const Tensor& metric) {
    return composed(c, projected, gain, metric);
  };
  const auto exact = run(c, formulas, torch::kDouble, torch::kDouble);
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    const auto ours = run(c, node, type, torch::kFloat), other = run(c, formulas, type, torch::kFloat);
    REQUIRE(ours.size() == exact.size());
    for (std::size_t i = 0; i < ours.size(); ++i) check_no_worse(ours, other, exact, type, i);
  }
}

constexpr const char* node_name = "metric attention by the library";

// Whether the graph of y has the node.
bool has_node(const Tensor& y) {
  std::vector<torch::autograd::Node*> waiting = {y.grad_fn().get()};
  std::set<torch::autograd::Node*> seen;
  while (!waiting.empty()) {
    auto* node = waiting.back();
    waiting.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (node->name() == node_name) return true;
    for (const auto& edge : node->next_edges()) waiting.push_back(edge.function.get());
  }
  return false;
}

// Many heads, because a temperature is one number per head, and the error of few numbers depends on chance.
constexpr std::int64_t batch = 2, tokens = 70, heads = 8, width = 64;

std::vector<MixerConfig> library_mixers() {
  std::vector<MixerConfig> list;
  for (const auto values : {MixerValues::own, MixerValues::shared}) {
    for (const bool qk_norm : {true, false}) {
      list.push_back(QuadraticOptions{.values = values, .qk_norm = qk_norm});
      for (const auto constraint :
           {MetricConstraint::symmetric, MetricConstraint::psd, MetricConstraint::diagonal, MetricConstraint::identity})
        list.push_back(MetricOptions{.constraint = constraint, .values = values, .qk_norm = qk_norm});
    }
    list.push_back(QuadraticOptions{.values = values, .qk_norm = true, .learned_temperature = true});
    list.push_back(MetricOptions{.values = values, .qk_norm = true, .learned_temperature = true, .fixed_norm = true});
    list.push_back(MetricOptions{
        .constraint = MetricConstraint::identity, .values = values, .qk_norm = true, .learned_temperature = true});
  }
  return list;
}

std::shared_ptr<Mixer> drawn_mixer(const MixerConfig& options, torch::ScalarType type, double dropout = 0) {
  torch::manual_seed(3);
  const auto mixer = make_mixer(options, {.width = width, .heads = heads, .dropout = dropout, .bias = true});
  const torch::NoGradGuard no_grad;
  // Numbers that every type can store.
  for (auto& parameter : mixer->parameters())
    parameter.copy_(parameter.add(0.3 * torch::randn_like(parameter)).to(torch::kBFloat16));
  mixer->to(type);
  return mixer;
}

// y, then the gradients of x and of every parameter.
Outcome run(const MixerConfig& options, Backend backend, bool causal, torch::ScalarType type) {
  const auto mixer = drawn_mixer(with_backend(options, backend), type);
  const auto draw = [&] { return torch::randn({batch, tokens, width}).to(torch::kBFloat16).to(type); };
  const auto x = draw().requires_grad_(), dy = draw();
  Pass pass{.training = true};
  const auto y = mixer->forward(x, x, self_visibility(causal, {}), nullptr, pass);
  CHECK(has_node(y) == (backend == Backend::automatic));
  y.backward(dy.to(y.scalar_type()));
  Outcome outcome = {y.detach(), x.grad()};
  for (const auto& parameter : mixer->parameters()) {
    CHECK(parameter.grad().scalar_type() == type);
    outcome.push_back(parameter.grad());
  }
  return outcome;
}

void check_mixer(const Outcome& ours, const Outcome& other, const Outcome& exact, torch::ScalarType type) {
  check_no_worse(ours, other, exact, type, 0);
  check_no_worse(ours, other, exact, type, 1);
  check_together_no_worse(ours, other, exact, type, /*first=*/2);
}

}  // namespace

TEST_CASE("attention by the library with kernels around it is correct at every length", "[fused]") {
  check_node({.tokens = GENERATE(1, 15, 16, 17, 64, 65, 200),
              .options = {.own_values = GENERATE(true, false), .causal = GENERATE(true, false)}});
}

TEST_CASE("attention by the library with kernels around it is correct at every width", "[fused]") {
  check_node({.width = GENERATE(8, 16, 24, 32, 40, 64, 72, 96, 128),
              .normalised = GENERATE(true, false),
              .options = {.own_values = true, .causal = true}});
}

TEST_CASE("attention by the library with kernels around it is correct for every form, norm and kind of values",
          "[fused]") {
  const bool normalised = GENERATE(true, false);
  check_node({.form_dimensions = GENERATE(0, 2, 3),
              .normalised = normalised,
              .has_gain = normalised && GENERATE(true, false),
              .options = {.own_values = GENERATE(true, false), .causal = GENERATE(true, false)}});
}

TEST_CASE("a projection that is not aligned or not contiguous gives the same results", "[fused]") {
  const LibraryMetricOptions options{.heads = 2, .own_values = true, .causal = true};
  torch::manual_seed(3);
  const auto metric = torch::randn({2, 16, 16});
  const auto projected = torch::randn({2, 20, 64}).to(torch::kBFloat16),
             dt = torch::randn({2, 2, 20, 16}).to(torch::kBFloat16);
  const auto outcome = [&](Tensor x) -> Outcome {
    x = x.detach().requires_grad_();
    const auto t = library_metric_attention(x, {}, metric, options);
    t.backward(dt);
    return {t.detach(), x.grad()};
  };
  const auto expected = outcome(projected);
  auto unaligned = torch::empty({2 * 20 * 64 + 1}, torch::kBFloat16).narrow(0, 1, 2 * 20 * 64).view_as(projected);
  unaligned.copy_(projected);
  const auto transposed = projected.transpose(0, 1).contiguous().transpose(0, 1);
  for (const auto& other : {unaligned, transposed}) {
    const auto found = outcome(other);
    CHECK(torch::equal(found[0], expected[0]));
    CHECK(torch::equal(found[1], expected[1]));
  }
}

TEST_CASE("an input that attention by the library does not support is an error with the reason", "[fused]") {
  const auto complaint = [](const Tensor& projected, const LibraryMetricOptions& options) {
    return message_of(ExitCode::usage, [&] { library_metric_attention(projected, {}, {}, options); });
  };
  const auto made = [](const std::vector<std::int64_t>& sizes) { return torch::ones(sizes, torch::kBFloat16); };
  CHECK_THAT(complaint(torch::ones({1, 4, 16}), {}), Mentions("bfloat16|Float"));
  CHECK_THAT(complaint(made({1, 4, 24}), {.heads = 2}), Mentions("multiple of 8"));
  CHECK_THAT(complaint(made({1, 4, 136}), {}), Mentions("128"));
  CHECK_THAT(complaint(made({1, 0, 16}), {}), ContainsSubstring("no tokens"));
  const auto x = made({1, 4, 16}).requires_grad_();
  const auto t = library_metric_attention(x, {}, {}, {});
  CHECK_THROWS_WITH(torch::autograd::grad({t.sum()}, {x}, {}, true, /*create_graph=*/true),
                    ContainsSubstring("no second derivatives"));
  CHECK_THROWS_WITH(library_metric_attention(x, torch::ones({8}), {}, {.norm_epsilon = 1e-6}), Mentions("gain"));
  CHECK_THROWS_WITH(library_metric_attention(x, {}, torch::ones({2, 8}), {}), Mentions("metric"));
}

TEST_CASE("backend auto uses the library's attention, which is as accurate as composed products in the same type",
          "[fused]") {
  const auto options = GENERATE(from_range(library_mixers()));
  const auto type = GENERATE(torch::kBFloat16, torch::kHalf);
  const bool causal = GENERATE(true, false);
  const auto exact = run(options, Backend::reference, causal, torch::kDouble),
             eager = run(options, Backend::reference, causal, type),
             ours = run(options, Backend::automatic, causal, type);
  check_mixer(ours, eager, exact, type);
}

TEST_CASE("the library's attention works under autocast, with gradients in the type of the parameters", "[fused]") {
  const auto options = GENERATE(from_range(library_mixers()));
  const auto exact = run(options, Backend::reference, /*causal=*/true, torch::kDouble);
  const AutocastScope autocast(Precision::bf16, torch::kCPU);
  const auto composed = run(options, Backend::composed, /*causal=*/true, torch::kFloat),
             ours = run(options, Backend::automatic, /*causal=*/true, torch::kFloat);
  check_mixer(ours, composed, exact, torch::kBFloat16);
}

TEST_CASE("backend auto does not use the library's attention for options that it does not support", "[fused]") {
  const MixerConfig shipped = MetricOptions{.values = MixerValues::own, .qk_norm = true};
  const auto taken = [](const MixerConfig& options, const Visibility& visibility, torch::ScalarType type,
                        double dropout = 0, bool training = true, MixerState* state = nullptr,
                        std::int64_t others = 0) {
    const auto mixer = drawn_mixer(options, type, dropout);
    const auto x = torch::randn({batch, tokens, width}).to(type).requires_grad_();
    const auto memory = torch::randn({batch, others, width}).to(type);
    const auto context = others > 0 ? torch::cat({memory, x}, 1) : x;
    Pass pass{.training = training, .random = RandomStream(torch::ones({}, torch::kLong))};
    return has_node(
        mixer->forward(others > 0 ? context.narrow(1, others, tokens) : x, context, visibility, state, pass));
  };
  const auto causal = self_visibility(true, {});
  CHECK(taken(shipped, causal, torch::kBFloat16));
  CHECK(taken(shipped, self_visibility(false, {}), torch::kHalf));
  CHECK_FALSE(taken(shipped, causal, torch::kFloat));
  CHECK_FALSE(taken(shipped, causal, torch::kBFloat16, /*dropout=*/0.1));
  CHECK(taken(shipped, causal, torch::kBFloat16, /*dropout=*/0.1, /*training=*/false));
  MixerState state(tokens);
  CHECK_FALSE(taken(shipped, causal, torch::kBFloat16, 0, true, &state));
  CHECK_FALSE(taken(shipped, causal, torch::kBFloat16, 0, true, nullptr, /*others=*/4));
  CHECK_FALSE(taken(shipped, self_visibility(true, torch::zeros({batch, tokens}, torch::kLong)), torch::kBFloat16));
  CHECK_FALSE(taken(shipped, Visibility{.causal = true, .window = 8}, torch::kBFloat16));
  CHECK_FALSE(taken(with_backend(shipped, Backend::composed), causal, torch::kBFloat16));
  CHECK_FALSE(taken(MetricOptions{.values = MixerValues::unnormalised, .qk_norm = true}, causal, torch::kBFloat16));
  CHECK_FALSE(taken(
      MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance, .values = MixerValues::own},
      causal, torch::kBFloat16));
}

TEST_CASE("the benchmark measures cores by the library's attention with kernels around it, and they are correct",
          "[fused]") {
  AttentionRequest request;
  request.shapes = {{.batch = 2, .heads = 2, .context = 40, .head_width = 16}};
  request.core = true;
  request.type = torch::kBFloat16;
  request.rounds = 1;
  request.around_library = {QuadraticOptions{}, MetricOptions{},
                            MetricOptions{.constraint = MetricConstraint::diagonal},
                            MetricOptions{.constraint = MetricConstraint::identity}};
  for (const auto& options : request.around_library) request.mixers.push_back(with_backend(options, Backend::composed));
  const auto results = bench_attention(request, [](const std::string&) {});
  const auto count = request.mixers.size();
  REQUIRE(results.size() == 2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto &composed = results[i], &ours = results[count + i];
    CHECK(ours.mixer == composed.mixer);
    CHECK(ours.backend == "library");
    CHECK(ours.ms > 0);
    CHECK(ours.error.value() <= 2 * composed.error.value());
  }
}

}  // namespace metaformer
