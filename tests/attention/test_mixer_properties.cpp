// Properties of every mixer.

#include <torch/csrc/autograd/generated/Functions.h>

#include "attention/mixer.h"
#include "attention/mixer_support.h"
#include "attention/score_positions.h"
#include "config/mixer_config.h"
#include "ops/autocast.h"
#include "support/any_mixer.h"

namespace metaformer::test_mixer_properties {

static constexpr MixerShape shape{.width = 12, .heads = 3, .context = 48, .dropout = 0, .bias = false};

TEST_CASE("no causal mixer looks ahead", "[mixer]") {
  const auto options = any_mixer();
  INFO(describe(options));
  const auto mixer = random_mixer(options, shape);
  const auto x = torch::randn({2, 10, 12}, torch::kDouble);
  auto changed = x.clone();
  changed.narrow(1, 6, 4).normal_();
  const auto visibility = self_visibility(true, {});
  const auto before = mix(*mixer, x, visibility), after = mix(*mixer, changed, visibility);
  CHECK(torch::equal(before.narrow(1, 0, 6), after.narrow(1, 0, 6)));
  const auto* pooling = std::get_if<AveragePoolingOptions>(&options);
  const bool always_zero = std::get_if<NoneOptions>(&options) != nullptr || (pooling && pooling->window.tokens == 1);
  CHECK(always_zero == torch::equal(before.narrow(1, 6, 4), after.narrow(1, 6, 4)));
}

TEST_CASE("a sequence of only padding gives zeros and finite gradients", "[mixer]") {
  const auto options = any_mixer_at_all();
  const bool causal = GENERATE(false, true);
  if (causal && !can_be_causal(options)) return does_not_apply("it sees what follows");
  const auto type = GENERATE(torch::kDouble, torch::kFloat);
  INFO(describe(options) << " causal " << causal);
  const auto mixer = random_mixer(options, shape, type);
  const auto x = torch::randn({2, 5, 12}, type).requires_grad_();
  auto segments = torch::zeros({2, 5}, torch::kLong);
  segments[1] = -1;
  const auto y = mix(*mixer, x, self_visibility(causal, segments));
  CHECK(y[1].abs().max().item<double>() == 0);
  CHECK(torch::isfinite(y).all().item<bool>());
  if (!y.requires_grad()) return;  // the mixer none
  y.sum().backward();
  CHECK(torch::isfinite(x.grad()).all().item<bool>());
  CHECK(x.grad()[1].abs().max().item<double>() == 0);
  for (const auto& parameter : mixer->parameters())
    CHECK((!parameter.requires_grad() || torch::isfinite(parameter.grad()).all().item<bool>()));
}

TEST_CASE("the scale of a form with a fixed norm has no effect", "[mixer]") {
  auto options = any_mixer();
  auto* quadratic = std::get_if<QuadraticOptions>(&options);
  auto* metric = std::get_if<MetricOptions>(&options);
  if (!(quadratic && quadratic->fixed_norm) && !(metric && metric->fixed_norm)) return does_not_apply("no fixed norm");
  if (metric && metric->constraint == MetricConstraint::diagonal && metric->score == MetricScore::distance)
    return does_not_apply("the softplus of a number is no multiple of it");
  INFO(describe(options));
  const auto x = torch::randn({2, 7, 12}, torch::kDouble);
  const auto visibility = self_visibility(true, {});
  const auto change_by_scaling = [&] {
    const auto mixer = random_mixer(options, shape);
    const auto before = mix(*mixer, x, visibility);
    const torch::NoGradGuard no_grad;
    auto parameters = mixer->named_parameters(/*recurse=*/false);
    for (const auto* name : {"form", "packed_metric", "packed_factor", "diagonal_metric"})
      if (auto* form = parameters.find(name)) form->mul_(7);
    return relative_error(mix(*mixer, x, visibility), before);
  };
  CHECK(change_by_scaling() < 1e-12);
  if (quadratic) quadratic->fixed_norm = false;
  if (metric) metric->fixed_norm = false;
  CHECK(change_by_scaling() > 1e-3);
}

TEST_CASE("gradients equal finite differences in float64", "[mixer]") {
  const auto options = any_mixer_at_all();
  const bool causal = GENERATE(false, true);
  if (causal && !can_be_causal(options)) return does_not_apply("it sees what follows");
  INFO(describe(options) << " causal " << causal);
  if (std::get_if<NoneOptions>(&options) != nullptr) return does_not_apply("none has no gradient");
  const MixerShape small{.width = 8, .heads = 2, .context = 9, .dropout = 0, .bias = true};
  const auto mixer = random_mixer(options, small);
  const auto x = torch::randn({1, 9, 8}, torch::kDouble).requires_grad_();
  const auto visibility = self_visibility(causal, example_segments().narrow(0, 0, 1));
  const auto direction = torch::randn({1, 9, 8}, torch::kDouble);
  const auto loss = [&] { return (mix(*mixer, x, visibility) * direction).sum(); };
  std::vector<torch::Tensor> inputs = {x};
  for (const auto& parameter : mixer->parameters())
    if (parameter.requires_grad()) inputs.push_back(parameter);
  check_gradients(inputs, loss, 1e-7);
}

TEST_CASE("all backends give the same values and gradients", "[mixer]") {
  const auto options = any_mixer();
  INFO(describe(options));
  const auto reference = with_backend(options, Backend::reference);
  const auto x = torch::randn({2, 9, 12}, torch::kDouble);
  const auto visibility = self_visibility(true, example_segments());
  const auto run = [&](const MixerConfig& chosen) {
    const auto mixer = random_mixer(chosen, shape);
    auto input = x.clone().requires_grad_();
    auto results = std::vector{mix(*mixer, input, visibility)};
    if (!results[0].requires_grad()) return results;
    results[0].square().sum().backward();
    results.push_back(input.grad());
    for (const auto& parameter : mixer->parameters())
      if (parameter.requires_grad()) results.push_back(parameter.grad());
    return results;
  };
  const auto one = run(options), other = run(reference);
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(relative_error(one[i], other[i]) < 1e-10);
}

TEST_CASE("dropout draws the same mask with every backend and precision, and results are near float64", "[mixer]") {
  const auto options = any_mixer();
  const auto [type, tolerance] =
      GENERATE(table<torch::ScalarType, double>({{torch::kFloat, 1e-5}, {torch::kBFloat16, 0.05}}));
  INFO(describe(options) << " " << type);
  const double dropout = GENERATE(0.0, 0.3);
  auto dropping = shape;
  dropping.dropout = dropout;
  const auto x = (0.5 * torch::randn({3, 40, 12}, torch::kDouble)).to(type).to(torch::kDouble);
  auto segments = torch::zeros({3, 40}, torch::kLong);
  segments.index_put_({1, torch::indexing::Slice(17, torch::indexing::None)}, 1);
  segments.index_put_({2, torch::indexing::Slice(35, torch::indexing::None)}, -1);
  const auto visibility = self_visibility(true, segments);
  StepPasses passes(5, torch::kCPU);
  passes.set_step(3);
  const auto run = [&](const MixerConfig& chosen, torch::ScalarType of_type, const torch::Tensor& of_x) {
    const auto mixer = random_mixer(chosen, dropping, type);  // the same rounded weights on both sides
    mixer->to(of_type);
    const auto input = of_x.detach().to(of_type).requires_grad_();
    auto pass = passes.pass(/*first_row=*/70);
    std::vector<torch::Tensor> results = {mixer->forward(input, input, visibility, nullptr, pass)};
    if (!results[0].requires_grad()) return results;
    results[0].square().sum().backward();
    results.push_back(input.grad());
    return results;
  };
  const auto reference = with_backend(options, Backend::reference);
  const auto one = run(options, type, x), other = run(reference, torch::kDouble, x);
  REQUIRE(one.size() == other.size());
  CHECK(one[0].scalar_type() == type);
  // Division by small numbers, as for keys of length 1, enlarges the rounding errors of the inputs.
  const double roundoff = type == torch::kFloat ? 0x1p-24 : 0x1p-8;
  const auto rounded = run(reference, torch::kDouble, x * (1 + roundoff * torch::randn_like(x)));
  for (std::size_t i = 0; i < one.size(); ++i) {
    const double of_inputs = carries_state(options) ? 8 * relative_error(rounded[i], other[i]) : 0;
    CHECK(relative_error(one[i], other[i]) < std::max(tolerance, of_inputs));
  }
}

// On a GPU the library's softmax has no backward pass with a gradient of another type than its bf16 input.
TEST_CASE("under autocast attention weights and the inputs of their softmax are float32", "[mixer]") {
  struct Watching : Probe {
    bool wants_scores() const override { return true; }
    void stream(StreamPoint, const torch::Tensor&) override {}
    void attended(const torch::Tensor&, const torch::Tensor& weight_bnce, const torch::Tensor&) override {
      weight = weight_bnce;
    }
    torch::Tensor weight;
  } probe;
  const auto options = any_mixer();
  INFO(describe(options));
  const auto mixer = random_mixer(options, shape, torch::kFloat);
  const auto x = torch::randn({2, 9, 12}).requires_grad_();
  const AutocastScope autocast(Precision::bf16, torch::kCPU);
  Pass pass{.probe = &probe};
  mixer->forward(x, x, self_visibility(true, {}), nullptr, pass);
  if (!probe.weight.defined()) return does_not_apply("no scores");
  CHECK(probe.weight.scalar_type() == torch::kFloat);
  const auto* node = dynamic_cast<torch::autograd::generated::SafeSoftmaxBackward0*>(probe.weight.grad_fn().get());
  if (node != nullptr) CHECK(node->self_scalar_type == torch::kFloat);  // average pooling has no softmax
}

TEST_CASE("cross attention sees a context of another length", "[mixer]") {
  const auto options = any_mixer_at_all();
  INFO(describe(options));
  const auto mixer = random_mixer(options, shape);
  const auto* metric = std::get_if<MetricOptions>(&options);
  if (metric && metric->score == MetricScore::as_published) return does_not_apply("it has no cross attention");
  const bool mixes_nothing = is<IdentityOptions>(options) || is<NoneOptions>(options);
  if (is<LshOptions>(options) || (!has_scores(options) && !mixes_nothing)) {
    const auto x = torch::randn({2, 6, 12}, torch::kDouble);
    CHECK_THROWS(mix(*mixer, x, x.clone(), {}));  // refused by a mixer without cross attention
    return;
  }
  if (const auto* dot = std::get_if<ScaledDotProductOptions>(&options); dot != nullptr && dot->window > 0) {
    const auto x = torch::randn({2, 6, 12}, torch::kDouble);
    CHECK_THROWS_WITH(mix(*mixer, x, x.clone(), {}), ContainsSubstring("window"));
    return;
  }
  // Cross attention to a copy of x equals self-attention.
  const auto x = torch::randn({2, 6, 12}, torch::kDouble);
  CHECK(relative_error(mix(*mixer, x, x.clone(), {}), mix(*mixer, x, {})) < 1e-12);
  // Fewer queries give the same rows.
  const auto queries = x.narrow(1, 1, 2).contiguous();
  CHECK(relative_error(mix(*mixer, queries, x, {}), mix(*mixer, x, {}).narrow(1, 1, 2)) < 1e-12);
}

TEST_CASE("the cache of metric attention is half the size of that of scaled dot product", "[mixer]") {
  const auto bytes = [](const MixerConfig& options) {
    const auto mixer = random_mixer(options, shape);
    MixerState state(16);
    const auto x = torch::randn({2, 3, 12}, torch::kDouble);
    mix(*mixer, x, self_visibility(true, {}), &state);
    return state.bytes();
  };
  CHECK(bytes(ScaledDotProductOptions{}) == 2 * 2 * 16 * 12 * 8);
  CHECK(bytes(MetricOptions{}) * 2 == bytes(ScaledDotProductOptions{}));
}

TEST_CASE("a state holds no more tokens than the window of its mixer, into whatever parts a text is divided",
          "[mixer]") {
  const std::int64_t window = GENERATE(1, 2, 5, 8), tokens = 24;
  const auto positions = GENERATE(
      PositionsConfig(NoPositionsConfig{}), PositionsConfig(RotaryPositionsConfig{}),
      PositionsConfig(AlibiPositionsConfig{}), PositionsConfig(T5PositionsConfig{.buckets = 6, .max_distance = 7}),
      PositionsConfig(ShawPositionsConfig{.max_distance = 3}), PositionsConfig(TransformerXlPositionsConfig{}));
  const ScaledDotProductOptions options{
      .window = window, .key_value_heads = GENERATE(0, 1), .sinks = GENERATE(false, true)};
  INFO(kind_of(positions) << " window " << window << " " << describe(options));
  auto placed = shape;
  placed.positions = positions;
  const auto mixer = random_mixer(options, placed);
  const auto bias = make_score_bias(positions, placed.heads, true);
  const auto biases_2nk = shared_distance_biases(options, placed);
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({2, tokens, 12}, torch::kDouble);
  auto segments = torch::zeros({2, tokens}, torch::kLong);
  segments[1].narrow(0, 9, tokens - 9).fill_(1);
  MixerState state(tokens);
  const auto part = [&](std::int64_t first, std::int64_t end, MixerState* with) {
    const auto count = end - first;
    auto visibility = self_visibility(true, segments.narrow(1, first, count));
    visibility.key_segment_be = segments.narrow(1, 0, end);
    if (bias != nullptr)
      visibility.score_bias_nce = bias->forward(offset_ce(count, end, torch::kCPU)).to(torch::kDouble);
    set_distances(visibility, placed, biases_2nk, end);
    return mix(*mixer, x.narrow(1, first, count).contiguous(), visibility, with);
  };
  const auto whole = part(0, tokens, nullptr);
  std::vector<torch::Tensor> parts;
  std::int64_t first = 0;
  for (const std::int64_t end : {7, 8, 9, 10, 14, 15, 23, 24}) {
    parts.push_back(part(first, end, &state));
    first = end;
  }
  CHECK(relative_error(torch::cat(parts, 1), whole) < 1e-12);
  const auto key_heads = options.key_heads(placed);
  CHECK(state.bytes() == 2 * 2 * key_heads * window * placed.head_width() * 8);
  // A loaded state holds as many tokens as the window.
  MixerState loaded(tokens);
  loaded.load(state.tensors(), "the state");
  CHECK(loaded.tensors().front().second.size(2) == window);
}

TEST_CASE("a full cache refuses further tokens", "[mixer]") {
  MixerState state(4);
  state.extend(0, torch::zeros({1, 3, 2}));
  CHECK_THROWS_WITH(state.extend(0, torch::zeros({1, 2, 2})), ContainsSubstring("4 tokens"));
}

}  // namespace metaformer::test_mixer_properties
