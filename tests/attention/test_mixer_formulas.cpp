// Every mixer against its formula, written out here in float64 from the definitions and independent of src/.

#include "attention/mixer.h"
#include "attention/mixer_support.h"
#include "attention/mixers.h"
#include "support/any_mixer.h"
#include "support/mixer_options.h"

namespace metaformer {

namespace {

using torch::einsum;
using torch::Tensor;

constexpr MixerShape shape{.width = 12, .heads = 3, .dropout = 0, .bias = false};
constexpr std::int64_t k = 4;

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

struct Weights {
  explicit Weights(const Mixer& mixer) {
    for (const auto& parameter : mixer.named_parameters()) all[parameter.key()] = parameter.value();
  }
  Tensor heads(const std::string& name, const Tensor& x, std::int64_t first = 0) const {
    const auto p_nkd = all.at(name).narrow(0, first, shape.width).view({shape.heads, k, shape.width});
    return einsum("nkd,bcd->bnck", {p_nkd, x});
  }
  // The same, normalised: x / sqrt(mean x^2 + 1e-6), times a gain where there is one.
  Tensor normal_heads(const std::string& name, const Tensor& x, const std::string& gain, std::int64_t first = 0) const {
    const auto p = heads(name, x, first);
    const auto normal = p / torch::sqrt((p * p).sum(-1, true) / k + 1e-6);
    return all.contains(gain) ? normal * all.at(gain) : normal;
  }
  // What scores r of heads become, [b, n, c, e].
  Tensor tempered(const Tensor& r_bnce) const {
    return all.contains("temperature") ? r_bnce * all.at("temperature").view({shape.heads, 1, 1}) : r_bnce;
  }
  // Of metric and quadratic attention: what scores are made of, and what is mixed.
  template <class Options>
  std::pair<Tensor, Tensor> shared(const Options& o, const Tensor& x) const {
    const auto p = o.qk_norm ? normal_heads("projection.weight", x, "norm.weight") : heads("projection.weight", x);
    if (o.values == MixerValues::shared) return {p, p};
    return {p, heads("projection.weight", x, o.values == MixerValues::own ? shape.width : 0)};
  }
  Tensor output(const Tensor& t_bnck) const {
    const auto e_dnk = all.at("output.weight").view({shape.width, shape.heads, k});
    return einsum("dnk,bnck->bcd", {e_dnk, t_bnck});
  }
  std::map<std::string, Tensor> all;
};

// softmax over the visible, zeros where nothing is.
Tensor attend(const Tensor& r_bnce, const Tensor& visible_bce, const Tensor& value_bnek) {
  const auto weight = torch::exp(r_bnce / 2.0) * visible_bce.unsqueeze(1);  // sqrt(k) = 2; scores here are small
  const auto total = weight.sum(-1, true);
  return einsum("bnce,bnek->bnck", {weight / torch::where(total > 0, total, torch::ones_like(total)), value_bnek});
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

struct Formula {
  const Mixer& mixer;
  const Weights& w;
  const Tensor& x;
  const Tensor& visible;
  bool causal;

  Tensor operator()(const ScaledDotProductOptions& o) const {
    const std::string all = "query_key_value.weight";
    const auto q = o.qk_norm ? w.normal_heads(all, x, "query_norm.weight") : w.heads(all, x);
    const auto key = o.qk_norm ? w.normal_heads(all, x, "key_norm.weight", 12) : w.heads(all, x, 12);
    const auto v = w.heads(all, x, 24);
    return w.output(attend(w.tempered(einsum("bnck,bnek->bnce", {q, key})), visible, v));
  }
  Tensor operator()(const QuadraticOptions& o) const {
    const auto [p, v] = w.shared(o, x);
    const auto form = form_by_formula(o, mixer);
    if (o.form == QuadraticForm::full) return w.output(attend(einsum("bcd,ndf,bef->bnce", {x, form, x}), visible, v));
    return w.output(attend(w.tempered(einsum("bnck,nkj,bnej->bnce", {p, form, p})), visible, v));
  }
  Tensor operator()(const MetricOptions& o) const {
    const auto [p, v] = w.shared(o, x);
    const auto m = metric_by_formula(o, mixer, shape);
    if (o.score == MetricScore::as_published) return w.output(attend(w.tempered(published_scores(p, m)), visible, v));
    const auto product = einsum("bnck,nkj,bnej->bnce", {p, m, p});
    if (o.score == MetricScore::bilinear) return w.output(attend(w.tempered(product), visible, v));
    const auto square = product.diagonal(0, 2, 3);
    const auto distance = square.unsqueeze(3) + square.unsqueeze(2) - 2 * product;
    return w.output(attend(w.tempered(-distance), visible, v));
  }
  // Of sequences no longer than a chunk; longer ones are in test_lsh.cpp.
  Tensor operator()(const LshOptions&) const {
    const auto q = w.heads("projection.weight", x), v = w.heads("projection.weight", x, 12);
    const auto key = q / torch::sqrt((q * q).sum(-1, true));
    const auto others = visible.logical_and(torch::eye(x.size(1)).to(torch::kBool).logical_not()).unsqueeze(1);
    const auto weight = torch::exp(einsum("bnck,bnek->bnce", {q, key})) * others;
    const auto total = weight.sum(-1, true);
    const auto own = v * visible.diagonal(0, 1, 2).unsqueeze(1).unsqueeze(3);
    return w.output(torch::where(total > 0, einsum("bnce,bnek->bnck", {weight, v}) / total.clamp_min(1e-300), own));
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
  ((mixer.get_if<Options>() != nullptr ? void(result = formula(*mixer.get_if<Options>())) : void()), ...);
  return result;
}

}  // namespace

TEST_CASE("every mixer equals its formula in float64", "[mixer]") {
  const auto options = any_mixer();
  const bool causal = GENERATE(false, true);
  const bool segmented = GENERATE(false, true);
  INFO(describe(options) << " causal " << causal << " segmented " << segmented);
  const auto mixer = random_mixer(options, shape);
  const auto x = torch::randn({2, 9, 12}, torch::kDouble);
  const auto segments = segmented ? example_segments() : torch::zeros({2, 9}, torch::kLong);
  const auto visible = brute_force_visible(causal, segments);
  const Weights weights(*mixer);
  const auto expected =
      formula_of<ScaledDotProductOptions, QuadraticOptions, MetricOptions, LshOptions, AveragePoolingOptions,
                 IdentityOptions, NoneOptions>(options, Formula{*mixer, weights, x, visible, causal});
  REQUIRE(expected.defined());
  const auto actual = mix(*mixer, x, self_visibility(causal, segmented ? segments : Tensor()));
  CHECK(relative_error(actual, expected) < 1e-10);
}

TEST_CASE("the packed product counts every pair of features once", "[mixer]") {
  // r = sum_k M_kk p_k p'_k + sum_{k > k'} M_kk' (p_k p'_k' + p_k' p'_k), against the published 2 M_kk' p_k p'_k'.
  torch::manual_seed(3);
  const auto packed = torch::randn({1, 10}, torch::kDouble), p = torch::randn({2, 4}, torch::kDouble);
  const auto m = dense(packed, k, false)[0];
  double corrected = 0, published = 0;
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      const double m_ij = m[i][j].item<double>();
      const double straight = (p[0][i] * p[1][j]).item<double>(), crossed = (p[0][j] * p[1][i]).item<double>();
      corrected += i == j ? m_ij * straight : m_ij * (straight + crossed);
      published += i == j ? m_ij * straight : 2 * m_ij * straight;
    }
  const double expected = torch::dot(p[0], torch::mv(m, p[1])).item<double>();
  CHECK(corrected == Approx(expected).epsilon(1e-12));
  CHECK(published != Approx(expected).epsilon(1e-3));
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
