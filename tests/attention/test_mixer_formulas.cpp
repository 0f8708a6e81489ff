// Every mixer against its formula, written out here in float64 from the definitions and independent of src/; scores
// with positions pair by pair, and what must hold for all kinds of positions.

#include <thread>

#include "attention/mixer_support.h"
#include "attention/score_positions.h"
#include "ops/functional.h"
#include "support/any_mixer.h"

namespace metaformer {

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

MixerConfig any_score_mixer() {
  return GENERATE(
      MixerConfig(ScaledDotProductOptions{}), MixerConfig(ScaledDotProductOptions{.backend = Backend::reference}),
      MixerConfig(QuadraticOptions{}), MixerConfig(QuadraticOptions{.values = MixerValues::own}),
      MixerConfig(QuadraticOptions{.form = QuadraticForm::full}), MixerConfig(MetricOptions{}),
      MixerConfig(MetricOptions{.backend = Backend::reference}), MixerConfig(MetricOptions{.values = MixerValues::own}),
      MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}),
      MixerConfig(ScaledDotProductOptions{.qk_norm = true, .learned_temperature = true}),
      MixerConfig(QuadraticOptions{.qk_norm = true, .learned_temperature = true, .fixed_norm = true}),
      MixerConfig(MetricOptions{.constraint = MetricConstraint::psd,
                                .score = MetricScore::distance,
                                .qk_norm = true,
                                .learned_temperature = true,
                                .fixed_norm = true}),
      MixerConfig(MetricOptions{
          .constraint = MetricConstraint::identity, .score = MetricScore::distance, .backend = Backend::reference}));
}

struct Positioned {
  Positioned(const MixerConfig& options, const PositionsConfig& given, bool is_causal)
      : positions(given),
        causal(is_causal),
        mixer(random_mixer(options, shape())),
        bias(make_score_bias(given, heads, is_causal)),
        biases_2nk(shared_distance_biases(options, shape())) {
    if (bias == nullptr) return;
    bias->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : bias->parameters()) parameter.normal_();
  }

  Visibility visibility(std::int64_t queries, std::int64_t keys, const Tensor& segment_bc = {}) const {
    auto visibility = self_visibility(causal, segment_bc);
    if (bias != nullptr) visibility.score_bias_nce = bias->forward(queries, keys);
    set_distances(visibility, shape(), biases_2nk, queries, keys);
    return visibility;
  }
  Tensor operator()(const Tensor& x_bcd, const Tensor& segment_bc = {}) const {
    return mix(*mixer, x_bcd, visibility(x_bcd.size(1), x_bcd.size(1), segment_bc));
  }

  MixerShape shape() const { return {.width = width, .heads = heads, .positions = positions}; }

  PositionsConfig positions;
  bool causal;
  std::shared_ptr<Mixer> mixer;
  std::shared_ptr<ScoreBias> bias;
  Tensor biases_2nk;  // u and v of transformer_xl, where all layers share them
};

// Every pair of features as a complex number, turned by position times frequency.
Tensor turned(const Tensor& x_bnck, const RotaryPositionsConfig& rotary) {
  const auto pairs = static_cast<std::int64_t>(rotary.fraction * static_cast<double>(x_bnck.size(3))) / 2;
  auto y = x_bnck.clone();
  for (std::int64_t c = 0; c < x_bnck.size(2); ++c)
    for (std::int64_t l = 0; l < pairs; ++l) {
      const double angle =
          static_cast<double>(c) * std::pow(rotary.base, -static_cast<double>(l) / static_cast<double>(pairs));
      const auto point = torch::complex(x_bnck.select(2, c).select(2, l), x_bnck.select(2, c).select(2, l + pairs));
      const auto moved = point * torch::polar(torch::ones({}, torch::kDouble), torch::full({}, angle, torch::kDouble));
      y.select(2, c).select(2, l).copy_(torch::real(moved));
      y.select(2, c).select(2, l + pairs).copy_(torch::imag(moved));
    }
  return y;
}

// T5's bucket of key minus query, one at a time.
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

// The published factors, pair by pair: 1 or 2 for features, times 1 or 2 for tokens; c >= c' decides the order.
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

// Queries, keys, what keys add to every score, and values, as the mixer's options define them. What stands for a vector
// that is compared with a key, once the form of the scores is applied to it; of a distance, what a key adds by itself.
struct Parts {
  Tensor q, key, key_term_bne, value;
  Tensor form_nkj;
  bool distance = false;
  Tensor score_bnce = {};  // of the published formula, in place of q . key
};

// A form, or scores, times the temperature of their head.
Tensor tempered(const Mixer& mixer, const Tensor& of_heads_nij) {
  const auto parameters = mixer.named_parameters();
  const auto* temperature_n = parameters.find("temperature");
  return temperature_n == nullptr ? of_heads_nij : of_heads_nij * temperature_n->view({heads, 1, 1});
}

// Vectors of heads, [b, n, c, k], of rows of a projection.
Tensor rows_of(const Mixer& mixer, const std::string& name, const Tensor& x, std::int64_t first = 0) {
  const auto p_nkd = mixer.named_parameters()[name].narrow(0, first, width).view({heads, k, width});
  return einsum("nkd,bcd->bnck", {p_nkd, x});
}

// x / sqrt(mean x^2 + 1e-6), times a gain where there is one.
Tensor normalised(const Mixer& mixer, const Tensor& x_bnck, const std::string& norm) {
  const auto y_bnck = x_bnck / (x_bnck.square().mean(-1, true) + 1e-6).sqrt();
  const auto parameters = mixer.named_parameters();
  const auto* gain_k = parameters.find(norm + ".weight");
  return gain_k == nullptr ? y_bnck : y_bnck * *gain_k;
}

Parts parts_of(const ScaledDotProductOptions& options, const Mixer& mixer, const Tensor& x) {
  const std::string all = "query_key_value.weight";
  auto q = rows_of(mixer, all, x), key = rows_of(mixer, all, x, width);
  if (options.qk_norm) {
    q = normalised(mixer, q, "query_norm");
    key = normalised(mixer, key, "key_norm");
  }
  const auto form = tempered(mixer, torch::eye(k, torch::kDouble).repeat({heads, 1, 1}));
  return {.q = einsum("bnck,nkj->bncj", {q, form}),
          .key = key,
          .value = rows_of(mixer, all, x, 2 * width),
          .form_nkj = form};
}

// Of metric and quadratic attention: what scores are made of, and what is mixed.
template <class Options>
std::pair<Tensor, Tensor> shared(const Options& options, const Mixer& mixer, const Tensor& x) {
  const auto plain = rows_of(mixer, "projection.weight", x);
  const auto p = options.qk_norm ? normalised(mixer, plain, "norm") : plain;
  if (options.values == MixerValues::own) return {p, rows_of(mixer, "projection.weight", x, width)};
  return {p, options.values == MixerValues::unnormalised ? plain : p};
}

Parts parts_of(const QuadraticOptions& options, const Mixer& mixer, const Tensor& x) {
  const auto [p, value] = shared(options, mixer, x);
  const auto form = tempered(mixer, form_by_formula(options, mixer));
  if (options.form == QuadraticForm::full)
    return {.q = einsum("bcd,ndf->bncf", {x, form}),
            .key = x.unsqueeze(1).expand({-1, heads, -1, -1}),
            .value = value,
            .form_nkj = form};
  return {.q = einsum("bnck,nkj->bncj", {p, form}), .key = p, .value = value, .form_nkj = form};
}

Parts parts_of(const MetricOptions& options, const Mixer& mixer, const Tensor& x) {
  const auto [p, value] = shared(options, mixer, x);
  const auto learned = metric_by_formula(options, mixer, {.width = width, .heads = heads});
  const auto m = tempered(mixer, learned);
  const auto image = einsum("bnck,nkj->bncj", {p, m});
  Parts parts{.q = image, .key = p, .value = value, .form_nkj = m};
  if (options.score == MetricScore::as_published) parts.score_bnce = tempered(mixer, published_scores(p, learned));
  if (options.score != MetricScore::distance) return parts;
  parts.q = 2 * image;
  parts.key_term_bne = -(image * p).sum(-1);
  parts.form_nkj = 2 * m;
  parts.distance = true;
  return parts;
}

Parts parts_of(const MixerConfig& options, const Mixer& mixer, const Tensor& x) {
  if (const auto* dot = std::get_if<ScaledDotProductOptions>(&options)) return parts_of(*dot, mixer, x);
  if (const auto* quadratic = std::get_if<QuadraticOptions>(&options)) return parts_of(*quadratic, mixer, x);
  return parts_of(*std::get_if<MetricOptions>(&options), mixer, x);
}

// Transformer-XL's terms b, c and d for one pair, [b, n]: those of the distance and of the two learned vectors.
Tensor distance_terms_bn(const Parts& parts, const Positioned& of, std::int64_t c, std::int64_t e) {
  const auto& xl = std::get<TransformerXlPositionsConfig>(of.positions);
  const auto parameters = of.mixer->named_parameters();
  const auto u_nk = xl.shared_biases ? of.biases_2nk[0] : parameters["positions.biases.content"];
  const auto v_nk = xl.shared_biases ? of.biases_2nk[1] : parameters["positions.biases.distance"];
  const auto image = [&](const Tensor& x_nk) { return einsum("nk,nkj->nj", {x_nk, parts.form_nkj}); };
  auto distance = c - e;
  if (xl.clamp_length > 0) distance = std::clamp(distance, -xl.clamp_length, xl.clamp_length);
  auto encoding_d = torch::zeros(width, torch::kDouble);
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const double angle =
        static_cast<double>(distance) * std::pow(10000.0, -2 * static_cast<double>(i) / static_cast<double>(width));
    encoding_d[i] = std::sin(angle);
    encoding_d[width / 2 + i] = std::cos(angle);
  }
  const auto r_nk = torch::mv(parameters["positions.projection.weight"], encoding_d).view({heads, -1});
  auto terms_bn = (parts.q.select(2, c) * r_nk).sum(-1) + (image(u_nk) * parts.key.select(2, e)).sum(-1) +
                  (image(v_nk) * r_nk).sum(-1);
  if (parts.distance) terms_bn = terms_bn - (image(r_nk) * r_nk).sum(-1) / 2;
  return terms_bn;
}

Tensor output_of(const Mixer& mixer, const Tensor& t_bnck) {
  return einsum("dnk,bnck->bcd", {mixer.named_parameters()["output.weight"].view({width, heads, k}), t_bnck});
}

Tensor expected_of(const MixerConfig& options, const Positioned& of, const Tensor& x, const Tensor& segment_bc) {
  const torch::NoGradGuard no_grad;
  auto parts = parts_of(options, *of.mixer, x);
  auto &q = parts.q, &key = parts.key;
  const auto &key_term_bne = parts.key_term_bne, &value = parts.value;
  const auto* rotary = std::get_if<RotaryPositionsConfig>(&of.positions);
  const auto* shaw = std::get_if<ShawPositionsConfig>(&of.positions);
  const auto parameters = of.mixer->named_parameters();
  if (rotary != nullptr) {
    q = turned(q, *rotary);
    key = turned(key, *rotary);
  }
  const auto tokens = x.size(1);
  auto t = torch::zeros({x.size(0), heads, tokens, k}, torch::kDouble);
  for (std::int64_t c = 0; c < tokens; ++c) {
    std::vector<Tensor> scores, values;
    for (std::int64_t e = 0; e < tokens; ++e) {
      auto key_bnk = key.select(2, e), value_bnk = value.select(2, e);
      if (shaw != nullptr) {
        const auto row = std::clamp<std::int64_t>(e - c, -shaw->max_distance, shaw->max_distance) + shaw->max_distance;
        key_bnk = key_bnk + parameters["positions.keys"][row];
        value_bnk = value_bnk + parameters["positions.values"][row];
      }
      auto score_bn =
          parts.score_bnce.defined() ? parts.score_bnce.select(2, c).select(2, e) : (q.select(2, c) * key_bnk).sum(-1);
      if (key_term_bne.defined()) score_bn = score_bn + key_term_bne.select(2, e);
      if (is<TransformerXlPositionsConfig>(of.positions)) score_bn = score_bn + distance_terms_bn(parts, of, c, e);
      score_bn = score_bn / std::sqrt(static_cast<double>(k));
      const double slopes[] = {1.0 / 16, 1.0 / 256, 1.0 / 4};  // of 3 heads
      if (is<AlibiPositionsConfig>(of.positions))
        score_bn = score_bn - torch::tensor({slopes[0], slopes[1], slopes[2]}, torch::kDouble) *
                                  static_cast<double>(std::abs(c - e));
      if (const auto* t5 = std::get_if<T5PositionsConfig>(&of.positions))
        score_bn = score_bn + of.bias->named_parameters()["weight"][bucket(e - c, *t5, of.causal)];
      const auto seen_b =
          (segment_bc.select(1, c) >= 0).logical_and(segment_bc.select(1, c) == segment_bc.select(1, e));
      const auto weight_bn = score_bn.exp() * seen_b.unsqueeze(1) * (of.causal && e > c ? 0.0 : 1.0);
      scores.push_back(weight_bn);
      values.push_back(value_bnk);
    }
    const auto weight_bne = torch::stack(scores, 2);
    const auto total = weight_bne.sum(-1, true);
    const auto share = weight_bne / torch::where(total > 0, total, torch::ones_like(total));
    t.select(2, c).copy_(einsum("bne,bnek->bnk", {share, torch::stack(values, 2).expand({x.size(0), -1, -1, -1})}));
  }
  return output_of(*of.mixer, t);
}

// Token by token: who is seen by whom.
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

// Of mixers without scores, and of LSH attention.
struct Formula {
  const Mixer& mixer;
  const Tensor& x;
  const Tensor& visible;
  bool causal;

  // Of sequences no longer than a chunk; longer ones are in test_lsh.cpp.
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
  Tensor operator()(const IdentityOptions&) const { return x * visible.any(2).unsqueeze(2); }
  Tensor operator()(const NoneOptions&) const { return torch::zeros_like(x); }
};

// By the options' type; undefined for a mixer that has no formula here.
template <class... Options>
Tensor formula_of(const MixerConfig& mixer, const Formula& formula) {
  Tensor result;
  ((std::get_if<Options>(&mixer) != nullptr ? void(result = formula(*std::get_if<Options>(&mixer))) : void()), ...);
  return result;
}

}  // namespace

TEST_CASE("every mixer equals its formula in float64", "[mixer]") {
  const auto options = any_mixer();
  const bool causal = GENERATE(false, true), segmented = GENERATE(false, true);
  INFO(describe(options) << " causal " << causal << " segmented " << segmented);
  const Positioned mixer(options, NoPositionsConfig{}, causal);
  const auto x = torch::randn({2, 9, width}, torch::kDouble);
  const auto segments = segmented ? example_segments() : torch::zeros({2, 9}, torch::kLong);
  const auto visible = brute_force_visible(causal, segments);
  const auto expected = has_scores(options)
                            ? expected_of(options, mixer, x, segments)
                            : formula_of<LshOptions, AveragePoolingOptions, IdentityOptions, NoneOptions>(
                                  options, Formula{*mixer.mixer, x, visible, causal});
  REQUIRE(expected.defined());
  CHECK(relative_error(mixer(x, segmented ? segments : Tensor()), expected) < 1e-10);
}

TEST_CASE("every mixer with scores takes positions by their formulas", "[positions]") {
  const auto positions = any_score_positions();
  const auto options = any_score_mixer();
  const bool causal = GENERATE(false, true);
  INFO(kind_of(positions) << " " << describe(options) << " causal " << causal);
  const Positioned mixer(options, positions, causal);
  const auto x = torch::randn({2, 9, width}, torch::kDouble);
  const auto segments = example_segments();
  CHECK(relative_error(mixer(x, segments), expected_of(options, mixer, x, segments)) < 1e-10);
  const auto whole = torch::zeros({2, 9}, torch::kLong);
  CHECK(relative_error(mixer(x), expected_of(options, mixer, x, whole)) < 1e-10);
}

TEST_CASE("with positions, incremental mixing equals mixing all at once", "[positions]") {
  const auto positions = any_score_positions();
  const auto options = any_score_mixer();
  INFO(kind_of(positions) << " " << describe(options));
  const Positioned mixer(options, positions, true);
  const auto x = torch::randn({2, 11, width}, torch::kDouble);
  const auto full = mixer(x);
  const auto in_parts = mix_in_parts(*mixer.mixer, x, {4, 1, 3, 1, 1, 1},
                                     [&](std::int64_t part, std::int64_t all) { return mixer.visibility(part, all); });
  CHECK(relative_error(in_parts, full) < 1e-12);
}

TEST_CASE("with positions, gradients equal finite differences", "[positions]") {
  const auto positions = any_score_positions();
  const auto options = any_score_mixer();
  INFO(kind_of(positions) << " " << describe(options));
  const Positioned mixer(options, positions, true);
  const auto x = torch::randn({1, 6, width}, torch::kDouble).requires_grad_();
  const auto direction = torch::randn({1, 6, width}, torch::kDouble);
  auto inputs = mixer.mixer->parameters();
  if (mixer.bias != nullptr)
    for (const auto& parameter : mixer.bias->parameters()) inputs.push_back(parameter);
  inputs.push_back(x);
  const auto loss = [&] { return (mixer(x) * direction).sum(); };
  const auto gradients = torch::autograd::grad({loss()}, inputs);
  const torch::NoGradGuard no_grad;
  // Along one random direction in all inputs at once, where terms cancel: hence differences of fourth order.
  constexpr double step = 2e-5;
  double expected = 0;
  std::vector<Tensor> moves;
  for (const auto& input : inputs) moves.push_back(torch::randn_like(input));
  for (std::size_t i = 0; i < inputs.size(); ++i) expected += (gradients[i] * moves[i]).sum().item<double>();
  const auto moved = [&](double steps) {
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].add_(steps * step * moves[i]);
    const double value = loss().item<double>();
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].sub_(steps * step * moves[i]);
    return value;
  };
  const double difference = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * step);
  CHECK(difference == Approx(expected).epsilon(1e-6));
}

TEST_CASE("ALiBi's slopes are the published ones", "[positions]") {
  CHECK(alibi_slopes(1) == std::vector<double>{1.0 / 256});
  CHECK(alibi_slopes(8) == std::vector<double>{0.5, 0.25, 0.125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256});
  CHECK(alibi_slopes(6) == std::vector<double>{0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256, 0.5, 0.125});
}

TEST_CASE("T5's buckets are exact, then logarithmic, then one", "[positions]") {
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
  // As a mixer has it: a view of [b, c, 2 n k].
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

TEST_CASE("threads that rotate ever longer sequences at once find the right tables", "[rotary]") {
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
  CHECK((!actual.defined() || actual.is_same(visible_bce(visibility, 9, 9, torch::kCPU))));  // one for all layers
  CHECK(torch::equal(actual, brute_force_visible(causal, segments)));
}

}  // namespace metaformer
