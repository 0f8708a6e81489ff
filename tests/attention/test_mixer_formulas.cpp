// Every mixer against its formula, written in float64 from the definitions and independent of src/; properties of all
// kinds of positions, whose formulas are in tests/python/reference_model.py.

#include <thread>

#include "attention/mixer_support.h"
#include "attention/place_mixer_formulas.h"
#include "attention/score_positions.h"
#include "attention/state_mixer_formulas.h"
#include "ops/functional.h"
#include "support/any_mixer.h"

namespace metaformer::test_mixer_formulas {

namespace {

using torch::einsum;
using torch::Tensor;

constexpr std::int64_t heads = 3, width = 12, k = 4;

PositionsConfig any_score_positions() {
  return GENERATE(PositionsConfig(RotaryPositionsConfig{}),
                  PositionsConfig(RotaryPositionsConfig{.base = 100, .fraction = 0.5}),
                  PositionsConfig(ShawPositionsConfig{.max_distance = 3}), PositionsConfig(AlibiPositionsConfig{}),
                  PositionsConfig(T5PositionsConfig{.buckets = 6, .max_distance = 7}),
                  PositionsConfig(TransformerXlPositionsConfig{}),
                  PositionsConfig(TransformerXlPositionsConfig{.shared_biases = false, .clamp_length = 5}));
}

struct Positioned {
  Positioned(const MixerConfig& options, const PositionsConfig& given, bool is_causal)
      : positions(given),
        causal(is_causal),
        shape(with_pairs({.width = width, .heads = heads, .context = 12, .positions = given}, options)),
        mixer(random_mixer(options, shape)),
        bias(make_score_bias(given, shape.heads, is_causal)),
        biases_2nk(shared_distance_biases(options, shape)) {
    if (bias == nullptr) return;
    bias->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : bias->parameters()) parameter.normal_();
  }

  Tensor operator()(const Tensor& x_bcd, const Tensor& segment_bc = {}) const {
    const auto tokens = x_bcd.size(1);
    auto visibility = self_visibility(causal, segment_bc);
    if (bias != nullptr) visibility.score_bias_nce = bias->forward(offset_ce(tokens, tokens, torch::kCPU));
    set_distances(visibility, shape, biases_2nk, tokens);
    return mix(*mixer, x_bcd, visibility);
  }

  PositionsConfig positions;
  bool causal;
  MixerShape shape;
  std::shared_ptr<Mixer> mixer;
  std::shared_ptr<ScoreBias> bias;
  Tensor biases_2nk;  // u and v of transformer_xl if all layers share them
};

// T5's bucket of one offset, key minus query.
std::int64_t bucket(std::int64_t offset, const T5PositionsConfig& t5, bool causal) {
  std::int64_t buckets = t5.buckets, first = 0, distance = -offset;
  if (!causal) {
    buckets /= 2;
    if (offset > 0) first = buckets;
    distance = std::abs(offset);
  }
  if (distance < 0) distance = 0;
  const auto exact = buckets / 2;
  if (distance < exact) return first + distance;
  const double place = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(t5.max_distance) / static_cast<double>(exact));
  const auto further = static_cast<std::int64_t>(place * static_cast<double>(buckets - exact) + 1e-9);
  return first + std::min(exact + further, buckets - 1);
}

// The published factors, pair by pair: 1 or 2 for the features times 1 or 2 for the tokens; written for c >= c' and
// mirrored.
Tensor published_scores(const Tensor& p, const Tensor& m) {
  const auto n_c = p.size(2);
  auto r = torch::zeros({p.size(0), p.size(1), n_c, n_c}, torch::kDouble);
  for (std::int64_t c = 0; c < n_c; ++c)
    for (std::int64_t e = 0; e <= c; ++e)
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          const double factor = (c == e ? 1 : 2) * (i == j ? 1 : 2);
          const auto m_n = m.select(1, i).select(1, j);
          const auto term = factor * m_n * p.select(2, c).select(2, i) * p.select(2, e).select(2, j);
          r.select(2, c).select(2, e) += term;
          if (c != e) r.select(2, e).select(2, c) += term;
        }
  return r;
}

// Values, and scores before the division by sqrt(k).
struct Parts {
  Tensor value_bnck, score_bnce;
};

// A form or scores, times the temperature of each head.
Tensor tempered(const Mixer& mixer, const Tensor& of_heads_nij) {
  const auto parameters = mixer.named_parameters();
  const auto* temperature_n = parameters.find("temperature");
  return temperature_n == nullptr ? of_heads_nij : of_heads_nij * temperature_n->view({heads, 1, 1});
}

// The vectors of all heads, [b, n, c, k], by rows of a projection.
Tensor rows_of(const Mixer& mixer, const std::string& name, const Tensor& x, std::int64_t first = 0) {
  const auto p_nkd = mixer.named_parameters()[name].narrow(0, first, width).view({heads, k, width});
  return einsum("nkd,bcd->bnck", {p_nkd, x});
}

// x / sqrt(mean x^2 + 1e-6), times a gain if there is one.
Tensor normalised(const Mixer& mixer, const Tensor& x_bnck, const std::string& norm) {
  const auto y_bnck = x_bnck / (x_bnck.square().mean(-1, true) + 1e-6).sqrt();
  const auto parameters = mixer.named_parameters();
  const auto* gain_k = parameters.find(norm + ".weight");
  return gain_k == nullptr ? y_bnck : y_bnck * *gain_k;
}

// Keys or values of `few` heads, each repeated for the neighbouring query heads that share it.
Tensor shared_rows_of(const Mixer& mixer, const Tensor& x, std::int64_t first, std::int64_t few) {
  const auto p_nkd = mixer.named_parameters()["query_key_value.weight"].narrow(0, first, few * k).view({few, k, width});
  std::vector<Tensor> of_heads;
  for (std::int64_t n = 0; n < heads; ++n) of_heads.push_back(einsum("kd,bcd->bck", {p_nkd[n / (heads / few)], x}));
  return torch::stack(of_heads, 1);
}

Parts parts_of(const ScaledDotProductOptions& options, const Mixer& mixer, const Tensor& x) {
  const auto few = options.key_value_heads == 0 ? heads : options.key_value_heads;
  auto q = rows_of(mixer, "query_key_value.weight", x), key = shared_rows_of(mixer, x, width, few);
  if (options.qk_norm) {
    q = normalised(mixer, q, "query_norm");
    key = normalised(mixer, key, "key_norm");
  }
  return {.value_bnck = shared_rows_of(mixer, x, width + few * k, few),
          .score_bnce = tempered(mixer, einsum("bnck,bnek->bnce", {q, key}))};
}

// For metric and quadratic attention: the p of the scores, and the values.
template <class Options>
std::pair<Tensor, Tensor> shared(const Options& options, const Mixer& mixer, const Tensor& x) {
  const auto plain = rows_of(mixer, "projection.weight", x);
  const auto p = options.qk_norm ? normalised(mixer, plain, "norm") : plain;
  if (options.values == MixerValues::own) return {p, rows_of(mixer, "projection.weight", x, width)};
  return {p, options.values == MixerValues::unnormalised ? plain : p};
}

Parts parts_of(const QuadraticOptions& options, const Mixer& mixer, const Tensor& x) {
  const auto [p, value] = shared(options, mixer, x);
  const auto form = form_by_formula(options, mixer);
  const auto score = options.form == QuadraticForm::full ? einsum("bcd,ndf,bef->bnce", {x, form, x})
                                                         : einsum("bnck,nkj,bnej->bnce", {p, form, p});
  return {.value_bnck = value, .score_bnce = tempered(mixer, score)};
}

Parts parts_of(const MetricOptions& options, const Mixer& mixer, const Tensor& x) {
  const auto [p, value] = shared(options, mixer, x);
  const auto m = metric_by_formula(options, mixer, {.width = width, .heads = heads});
  auto score = einsum("bnck,nkj,bnej->bnce", {p, m, p});
  if (options.score == MetricScore::as_published) score = published_scores(p, m);
  if (options.score == MetricScore::distance) {
    const auto difference = p.unsqueeze(3) - p.unsqueeze(2);
    score = -einsum("bncek,nkj,bncej->bnce", {difference, m, difference});
  }
  return {.value_bnck = value, .score_bnce = tempered(mixer, score)};
}

Tensor output_of(const Mixer& mixer, const Tensor& t_bnck) {
  return einsum("dnk,bnck->bcd", {mixer.named_parameters()["output.weight"].view({width, heads, k}), t_bnck});
}

// The visible pairs of tokens, one pair at a time.
Tensor brute_force_visible(bool causal, const Tensor& segment_bc) {
  auto visible = torch::zeros({segment_bc.size(0), segment_bc.size(1), segment_bc.size(1)}, torch::kBool);
  for (std::int64_t b = 0; b < segment_bc.size(0); ++b)
    for (std::int64_t c = 0; c < segment_bc.size(1); ++c)
      for (std::int64_t e = 0; e < segment_bc.size(1); ++e) {
        const auto query = segment_bc[b][c].item<std::int64_t>(), key = segment_bc[b][e].item<std::int64_t>();
        visible[b][c][e] = query >= 0 && query == key && (!causal || e <= c);
      }
  return visible;
}

struct Formula {
  const Mixer& mixer;
  const Tensor& x;
  const Tensor& visible;
  bool causal;

  // Mixers with scores.
  template <class Options>
  Tensor operator()(const Options& options) const requires Options::has_scores {
    const torch::NoGradGuard no_grad;
    const auto [value_bnck, score_bnce] = parts_of(options, mixer, x);
    const auto weight = (score_bnce / std::sqrt(static_cast<double>(k))).exp() * visible.unsqueeze(1);
    const auto total = weight.sum(-1, true);
    const auto share = weight / torch::where(total > 0, total, torch::ones_like(total));
    return output_of(mixer, einsum("bnce,bnek->bnck", {share, value_bnck}));
  }
  Tensor operator()(const ScaledDotProductOptions& options) const {
    const torch::NoGradGuard no_grad;
    const auto [value_bnck, score_bnce] = parts_of(options, mixer, x);
    const auto share = weights_by_formula(options, mixer, score_bnce / std::sqrt(static_cast<double>(k)), visible);
    return output_of(mixer, einsum("bnce,bnek->bnck", {share, value_bnck}));
  }
  // The first layer, with four heads, one pair of heads at a time.
  Tensor operator()(const DifferentialOptions&) const {
    const torch::NoGradGuard no_grad;
    constexpr std::int64_t pairs = 2, own = width / 4;
    const auto parameters = mixer.named_parameters();
    const auto rows = [&](std::int64_t first, std::int64_t count) {
      return einsum("kd,bcd->bck", {parameters["query_key_value.weight"].narrow(0, first, count), x});
    };
    const auto product = [&](const char* one, const char* other) {
      return (parameters[one] * parameters[other]).sum().item<double>();
    };
    const double initial = 0.2;
    const double lambda =
        std::exp(product("lambda_q1", "lambda_k1")) - std::exp(product("lambda_q2", "lambda_k2")) + initial;
    std::vector<Tensor> mixed;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const auto attention = [&](std::int64_t head) {
        const auto score = einsum("bck,bek->bce", {rows(head * own, own), rows(width + head * own, own)});
        return weights_by_formula({}, mixer, score.unsqueeze(1) / std::sqrt(static_cast<double>(own)), visible)
            .squeeze(1);
      };
      const auto weight = attention(2 * pair) - lambda * attention(2 * pair + 1);
      const auto t = einsum("bce,bej->bcj", {weight, rows(2 * width + 2 * pair * own, 2 * own)});
      const auto norm = (t.square().mean(-1, true) + 1e-6).sqrt();
      mixed.push_back((1 - initial) * t / norm * parameters["norm.weight"]);
    }
    return einsum("dj,bcj->bcd", {parameters["output.weight"], torch::cat(mixed, 2)});
  }
  // Sequences no longer than a chunk; longer ones are in test_lsh.cpp.
  Tensor operator()(const LshOptions&) const {
    const auto q = rows_of(mixer, "projection.weight", x), v = rows_of(mixer, "projection.weight", x, width);
    const auto key = q / torch::sqrt((q * q).sum(-1, true));
    const auto others = visible.logical_and(torch::eye(x.size(1)).to(torch::kBool).logical_not()).unsqueeze(1);
    const auto weight = torch::exp(einsum("bnck,bnek->bnce", {q, key})) * others;
    const auto total = weight.sum(-1, true);
    const auto own = v * visible.diagonal(0, 1, 2).unsqueeze(1).unsqueeze(3);
    return output_of(mixer,
                     torch::where(total > 0, einsum("bnce,bnek->bnck", {weight, v}) / total.clamp_min(1e-300), own));
  }
  Tensor operator()(const AveragePoolingOptions& o) const {
    const auto window = o.window.tokens;
    auto y = torch::zeros_like(x);
    for (std::int64_t b = 0; b < x.size(0); ++b)
      for (std::int64_t c = 0; c < x.size(1); ++c) {
        auto sum = torch::zeros(x.size(2), torch::kDouble);
        std::int64_t count = 0;
        for (std::int64_t e = 0; e < x.size(1); ++e) {
          const auto before = causal ? window - 1 : window / 2, after = causal ? 0 : (window - 1) / 2;
          const bool inside = o.window.all() || (e >= c - before && e <= c + after);
          if (!inside || !visible[b][c][e].item<bool>()) continue;
          sum += x[b][e];
          ++count;
        }
        if (count > 0) y[b][c] = sum / count - x[b][c];
      }
    return y;
  }
  // Mixers that depend on the places of tokens in their texts.
  template <class Options>
  Tensor operator()(const Options& options) const requires std::derived_from<Options, PlacedMixerOptions> ||
      std::same_as<Options, FourierOptions> || std::same_as<Options, HyenaOptions> {
    return place_mixer_by_formula(options, mixer, {.width = width, .heads = heads, .context = 12}, x, visible, causal);
  }
  template <std::derived_from<StateMixerOptions> Options>
  Tensor operator()(const Options& options) const {
    return state_mixer_by_formula(options, mixer, heads, x, visible, causal);
  }
  Tensor operator()(const IdentityOptions&) const { return x * visible.any(2).unsqueeze(2); }
  Tensor operator()(const NoneOptions&) const { return torch::zeros_like(x); }
};

}  // namespace

TEST_CASE("every mixer equals its formula in float64", "[mixer]") {
  const auto options = any_combination();
  const bool causal = GENERATE(false, true), segmented = GENERATE(false, true);
  if (causal && !can_be_causal(options)) return does_not_apply("it sees what follows");
  INFO(describe(options) << " causal " << causal << " segmented " << segmented);
  const Positioned mixer(options, NoPositionsConfig{}, causal);
  const auto x = torch::randn({2, 9, width}, torch::kDouble);
  const auto segments = segmented ? example_segments() : torch::zeros({2, 9}, torch::kLong);
  const auto visible = brute_force_visible(causal, segments);
  const auto expected = std::visit(Formula{*mixer.mixer, x, visible, causal}, options);
  CHECK(relative_error(mixer(x, segmented ? segments : Tensor()), expected) < 1e-10);
}

TEST_CASE("heads that share keys and values equal heads with copies of them", "[mixer]") {
  const auto type = GENERATE(torch::kDouble, torch::kFloat);
  const bool normalises = GENERATE(false, true);
  const auto positions = any_score_positions();
  INFO(kind_of(positions) << " " << type << " normalised " << normalises);
  const MixerShape shape{.width = width, .heads = 6, .positions = positions};
  const ScaledDotProductOptions few{.qk_norm = normalises, .key_value_heads = 2, .sinks = true};
  auto many = few;
  many.key_value_heads = 0;
  const auto shared = random_mixer(few, shape, type), whole = random_mixer(many, shape, type);
  const torch::NoGradGuard no_grad;
  auto theirs = shared->named_parameters(), own = whole->named_parameters();
  for (const auto& parameter : theirs)
    if (parameter.key() != "query_key_value.weight") own[parameter.key()].copy_(parameter.value());
  const auto rows = theirs["query_key_value.weight"].split_with_sizes({width, 4, 4});
  const auto repeated = [](const Tensor& of_two) {  // two heads of two features, each for three query heads
    return of_two.view({2, 1, 2, width}).expand({2, 3, 2, width}).reshape({width, width});
  };
  own["query_key_value.weight"].copy_(torch::cat({rows[0], repeated(rows[1]), repeated(rows[2])}));
  const auto x = torch::randn({2, 9, width}, type);
  auto visibility = self_visibility(true, example_segments());
  const auto bias = make_score_bias(positions, 6, true);
  if (bias != nullptr) visibility.score_bias_nce = bias->forward(offset_ce(9, 9, torch::kCPU)).to(type);
  set_distances(visibility, shape, shared_distance_biases(few, shape), 9);
  for (auto* of_distances : {&visibility.distance_ld, &visibility.content_bias_nk, &visibility.distance_bias_nk})
    if (of_distances->defined()) *of_distances = of_distances->to(type);
  const double tolerance = type == torch::kDouble ? 1e-12 : 2e-6;
  CHECK(relative_error(mix(*shared, x, visibility), mix(*whole, x, visibility)) < tolerance);
}

TEST_CASE("all backends give the same values and gradients with all positions", "[positions]") {
  const auto positions = any_score_positions();
  const auto options = any_mixer_with_scores();
  const bool causal = GENERATE(false, true);
  INFO(kind_of(positions) << " " << describe(options) << " causal " << causal);
  const auto x = torch::randn({2, 9, width}, torch::kDouble).requires_grad_();
  const auto segments = GENERATE(false, true) ? example_segments() : Tensor();
  const auto results = [&](const MixerConfig& chosen) {
    const Positioned mixer(chosen, positions, causal);
    auto inputs = mixer.mixer->parameters();
    if (mixer.bias != nullptr)
      for (const auto& parameter : mixer.bias->parameters()) inputs.push_back(parameter);
    inputs.push_back(x);
    const auto y = mixer(x, segments);
    auto all = torch::autograd::grad({y.square().sum()}, inputs);
    all.push_back(y.detach());
    return all;
  };
  const auto one = results(options), other = results(with_backend(options, Backend::reference));
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(relative_error(one[i], other[i]) < 1e-10);
}

TEST_CASE("ALiBi's slopes are the published ones", "[positions]") {
  CHECK(alibi_slopes(1) == std::vector<double>{1.0 / 256});
  CHECK(alibi_slopes(8) == std::vector<double>{0.5, 0.25, 0.125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256});
  CHECK(alibi_slopes(6) == std::vector<double>{0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256, 0.5, 0.125});
}

TEST_CASE("T5's buckets are exact for near tokens, then logarithmic, then a single one", "[positions]") {
  const bool causal = GENERATE(false, true);
  const auto config = GENERATE(T5PositionsConfig{}, T5PositionsConfig{.buckets = 8, .max_distance = 20});
  const auto offset = torch::arange(-300, 301);
  const auto actual = t5_bucket_ce(offset, config, causal);
  for (std::int64_t i = 0; i < offset.size(0); ++i)
    REQUIRE(actual[i].item<std::int64_t>() == bucket(offset[i].item<std::int64_t>(), config, causal));
  CHECK(actual.max().item<std::int64_t>() == config.buckets - 1);
}

TEST_CASE("rotating on the CPU equals the library's operators, forward and backward", "[positions]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  const auto [features, pairs] = GENERATE(table<std::int64_t, std::int64_t>({{4, 2}, {32, 16}, {40, 17}, {128, 64}}));
  torch::manual_seed(4);
  // A view of [b, c, 2 n k], as in a mixer.
  const auto all = torch::randn({2, 7, 2 * 3 * features}).to(type);
  auto x = all.narrow(2, 3 * features, 3 * features).unflatten(2, {3, features}).transpose(1, 2).detach();
  auto wide = x.to(torch::kDouble).requires_grad_();
  x.requires_grad_();
  const auto angle = torch::rand({7, pairs}, torch::kDouble) * 6;
  const auto y = rotate_pairs(x, angle.cos().to(torch::kFloat), angle.sin().to(torch::kFloat));
  const auto expected = rotate_pairs(wide, angle.cos(), angle.sin());
  const double tolerance = type == torch::kFloat ? 1e-6 : 1e-2;
  CHECK(y.scalar_type() == type);
  CHECK(relative_error(y, expected) < tolerance);
  const auto direction = torch::randn({2, 3, 7, features}).to(type);
  y.backward(direction);
  expected.backward(direction.to(torch::kDouble));
  CHECK(relative_error(x.grad(), wide.grad()) < tolerance);
}

TEST_CASE("threads that rotate growing sequences at once use the right tables", "[rotary]") {
  constexpr std::int64_t threads = 4, longest = 40;
  const RotaryPositionsConfig config;
  for (int round = 0; round < 20; ++round) {
    RotaryPositions shared(config, 8);
    std::vector<int> wrong(threads, 0);
    std::vector<std::thread> workers;
    for (std::int64_t worker = 0; worker < threads; ++worker)
      workers.emplace_back([&, worker] {
        RotaryPositions own(config, 8);
        for (std::int64_t tokens = worker + 1; tokens <= longest; ++tokens) {
          const auto x_bnck = torch::ones({1, 1, tokens, 8});
          wrong[static_cast<std::size_t>(worker)] +=
              !torch::equal(shared.rotate(x_bnck, tokens), own.rotate(x_bnck, tokens));
        }
      });
    for (auto& worker : workers) worker.join();
    CHECK(wrong == std::vector<int>(threads, 0));
  }
}

TEST_CASE("visibility equals its definition for every pair of tokens", "[mixer]") {
  const bool causal = GENERATE(false, true);
  const auto segments = example_segments();
  const auto visibility = self_visibility(causal, segments);
  const auto actual = visible_bce(visibility, 9, 9, torch::kCPU);
  CHECK((!actual.defined() || actual.is_same(visible_bce(visibility, 9, 9, torch::kCPU))));  // all layers share one
  CHECK(torch::equal(actual, brute_force_visible(causal, segments)));
}

}  // namespace metaformer::test_mixer_formulas
