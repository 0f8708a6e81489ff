// The observations of a probe for every mixer and kind of positions.

#include <cmath>
#include <limits>

#include "attention/mixer_support.h"
#include "attention/score_positions.h"
#include "config/mixer_config.h"
#include "model/stream_probe.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer::test_stream_probe {

namespace {

using torch::Tensor;

constexpr std::int64_t heads = 3, width = 12, tokens = 9;

struct Observed {
  Tensor mixed_bcd, unobserved_bcd;
  StreamProbe probe{};
  bool causal;
  std::shared_ptr<Mixer> mixer;
  Tensor biases_2nk;  // u and v of transformer_xl if all layers share them
};

Observed observe(const MixerConfig& options, const PositionsConfig& positions, bool causal) {
  const auto shape = with_pairs({.width = width, .heads = heads, .context = tokens, .positions = positions}, options);
  const auto mixer = random_mixer(options, shape);
  auto visibility = self_visibility(causal, {});
  if (const auto bias = make_score_bias(positions, shape.heads, causal)) {
    bias->to(torch::kDouble);
    visibility.score_bias_nce = bias->forward(offset_ce(tokens, tokens, torch::kCPU));
  }
  const torch::NoGradGuard no_grad;
  const auto x_bcd = torch::randn({1, tokens, width}, torch::kDouble);
  Observed observed{.causal = causal, .mixer = mixer, .biases_2nk = shared_distance_biases(options, shape)};
  set_distances(visibility, shape, observed.biases_2nk, tokens);
  Pass pass, with_probe{.probe = &observed.probe};
  observed.unobserved_bcd = mixer->forward(x_bcd, x_bcd, visibility, nullptr, pass);
  observed.mixed_bcd = mixer->forward(x_bcd, x_bcd, visibility, nullptr, with_probe);
  return observed;
}

// The observations for the only sequence.
struct Seen {
  ScoredVectors vectors;
  Tensor score_nce, attention_nce;
};
Seen seen_by(const StreamProbe& probe) {
  const auto& seen = probe.latest();
  return {.vectors = seen.vectors, .score_nce = seen.score_bnce[0], .attention_nce = seen.weight_bnce[0]};
}

void check_attention(const Observed& observed, const MixerConfig& options) {
  const auto& [vectors, score_nce, attention_nce] = seen_by(observed.probe);
  if (const auto* dot = std::get_if<ScaledDotProductOptions>(&options)) {
    auto visible_1ce = torch::ones({1, tokens, tokens}, torch::kBool);
    if (observed.causal) visible_1ce = visible_1ce.tril();
    const auto expected = weights_by_formula(*dot, *observed.mixer, score_nce.unsqueeze(0), visible_1ce)[0];
    CHECK(torch::allclose(attention_nce, expected, 1e-9, 1e-12));
    if (dot->sinks || dot->weights == AttentionWeights::sigmoid || dot->window > 0) return;
  }
  const auto sums_nc = attention_nce.sum(2);
  CHECK(torch::allclose(sums_nc, torch::ones_like(sums_nc), 0, 1e-12));
  auto weight_nce = score_nce.exp();  // no overflow, because scores are small here
  if (observed.causal) weight_nce = weight_nce.tril();
  CHECK(torch::allclose(attention_nce, weight_nce / weight_nce.sum(2, true), 1e-9, 1e-12));
}

// Minus the squared distances of docs/architecture.md, "Positions of Transformer-XL", divided by the root of the head
// width, pair by pair.
Tensor expected_distances_nce(Mixer& mixer, const TransformerXlPositionsConfig& xl, const Tensor& biases_2nk,
                              const ScoredVectors& vectors) {
  const auto parameters = mixer.named_parameters();
  const auto u_nk = xl.shared_biases ? biases_2nk[0] : parameters["positions.biases.content"];
  const auto v_nk = xl.shared_biases ? biases_2nk[1] : parameters["positions.biases.distance"];
  const auto& form_nkk = vectors.form_nij;
  const auto square_n = [&](const Tensor& x_nk) { return torch::einsum("nk,nkj,nj->n", {x_nk, form_nkk, x_nk}); };
  auto score_nce = torch::zeros({heads, tokens, tokens}, torch::kDouble);
  for (std::int64_t c = 0; c < tokens; ++c)
    for (std::int64_t e = 0; e < tokens; ++e) {
      auto t = static_cast<double>(c - e);
      if (xl.clamp_length > 0) t = std::copysign(std::min(std::abs(t), static_cast<double>(xl.clamp_length)), t);
      std::vector<double> encoding;
      for (const bool sine : {true, false})
        for (std::int64_t i = 0; i < width / 2; ++i) {
          const double angle = t * std::pow(10000.0, -2 * static_cast<double>(i) / static_cast<double>(width));
          encoding.push_back(sine ? std::sin(angle) : std::cos(angle));
        }
      const auto r_nk = torch::mv(parameters["positions.projection.weight"], torch::tensor(encoding, torch::kDouble))
                            .view({heads, -1});
      const auto p_nk = vectors.left_bnci[0].select(1, c), key_nk = vectors.right_bnej[0].select(1, e);
      score_nce.select(1, c).select(1, e).copy_(-square_n(p_nk + u_nk - key_nk) - square_n(p_nk + v_nk - r_nk));
    }
  return score_nce / std::sqrt(static_cast<double>(width) / heads);
}

// Whether scores are never positive; with a learned temperature they may be, because it may be negative.
bool is_distance(const MixerConfig& options) {
  const auto* metric = std::get_if<MetricOptions>(&options);
  return metric && metric->score == MetricScore::distance && !metric->learned_temperature;
}

}  // namespace

TEST_CASE("a probe does not change the output of a mixer, and observes the weights of its softmax", "[probe]") {
  const auto options = any_mixer();
  const bool causal = GENERATE(false, true);
  INFO(describe(options) << (causal ? ", causal" : ""));
  const auto observed = observe(options, NoPositionsConfig{}, causal);
  CHECK(relative_error(observed.mixed_bcd, observed.unobserved_bcd) < 1e-12);
  REQUIRE(observed.probe.latest().has_scores() == has_scores(options));
  if (has_scores(options)) check_attention(observed, options);
  if (is_distance(options)) CHECK(seen_by(observed.probe).score_nce.max().item<double>() <= 0);
}

TEST_CASE("with every kind of positions a probe observes the attention weights of the values", "[probe]") {
  const auto options = GENERATE(
      MixerConfig(ScaledDotProductOptions{}), MixerConfig(QuadraticOptions{.form = QuadraticForm::full}),
      MixerConfig(MetricOptions{}),
      MixerConfig(ScaledDotProductOptions{.window = 4, .key_value_heads = 1, .sinks = true}),
      MixerConfig(ScaledDotProductOptions{.weights = AttentionWeights::sigmoid}), MixerConfig(DifferentialOptions{}),
      MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}));
  const auto positions = any_positions();
  const bool causal = GENERATE(false, true);
  INFO(describe(options) << " " << kind_of(positions) << (causal ? ", causal" : ""));
  const auto observed = observe(options, positions, causal);
  CHECK(relative_error(observed.mixed_bcd, observed.unobserved_bcd) < 1e-12);
  check_attention(observed, options);
  if (is_distance(options) && (is<NoPositionsConfig>(positions) || is<AlibiPositionsConfig>(positions)))
    CHECK(seen_by(observed.probe).score_nce.max().item<double>() <= 0);
}

TEST_CASE("observed distances with Transformer-XL positions equal their formula", "[probe]") {
  const auto constraint = GENERATE(MetricConstraint::psd, MetricConstraint::diagonal, MetricConstraint::identity);
  const auto backend = GENERATE(Backend::automatic, Backend::reference);
  const bool shares = GENERATE(true, false), causal = GENERATE(false, true), own = GENERATE(false, true);
  const TransformerXlPositionsConfig xl{.shared_biases = shares, .clamp_length = shares ? 0 : 4};
  const MixerConfig options(MetricOptions{.constraint = constraint,
                                          .score = MetricScore::distance,
                                          .values = own ? MixerValues::own : MixerValues::shared,
                                          .backend = backend});
  INFO(describe(options) << " shared " << shares << " causal " << causal);
  const auto observed = observe(options, xl, causal);
  const auto& [vectors, score_nce, attention_nce] = seen_by(observed.probe);
  auto expected_nce = expected_distances_nce(*observed.mixer, xl, observed.biases_2nk, vectors);
  // With a causal mask there are no distances to hidden tokens.
  auto visible_nce = causal ? score_nce.tril() : score_nce;
  if (causal) expected_nce = expected_nce.tril();
  CHECK(relative_error(visible_nce, expected_nce) < 1e-12);
  CHECK(visible_nce.max().item<double>() <= 0);
  check_attention(observed, options);
  CHECK(relative_error(observed.mixed_bcd, observed.unobserved_bcd) < 1e-12);
}

TEST_CASE("observed scores equal those of the observed vectors and form", "[probe]") {
  const auto options = any_mixer();
  if (!has_scores(options)) return does_not_apply("no scores");
  INFO(describe(options));
  const auto observed = observe(options, NoPositionsConfig{}, true);
  const auto& [vectors, score_nce, attention_nce] = seen_by(observed.probe);
  const auto name = describe(options);
  if (name.find("as_published") != std::string::npos) return does_not_apply("its scores are of no single form");
  const auto left_nci = vectors.left_bnci[0], right_nej = vectors.right_bnej[0];
  const auto form_nij = vectors.form_nij.defined()
                            ? vectors.form_nij
                            : torch::eye(left_nci.size(2), torch::kDouble).expand({left_nci.size(0), -1, -1});
  auto expected = torch::einsum("nci,nij,nej->nce", {left_nci, form_nij, right_nej});
  if (name.find("distance") != std::string::npos) {
    const auto difference = left_nci.unsqueeze(2) - right_nej.unsqueeze(1);
    expected = -torch::einsum("ncei,nij,ncej->nce", {difference, form_nij, difference});
  }
  const auto of_heads = static_cast<double>(width) / static_cast<double>(left_nci.size(0));
  CHECK(relative_error(score_nce, expected / std::sqrt(of_heads)) < 1e-9);
}

TEST_CASE("measures of attention equal their formulas, computed query by query", "[probe]") {
  constexpr std::int64_t batch = 2;
  torch::manual_seed(4);
  const auto score_bnce = 3 * torch::randn({batch, heads, tokens, tokens}, torch::kDouble);
  const auto segments_bc = torch::tensor({{0, 0, 0, 0, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 2, 2, -1, -1}}, torch::kLong);
  const auto visibility = self_visibility(GENERATE(true, false), segments_bc);
  const auto visible_bce = metaformer::visible_bce(visibility, tokens, tokens, torch::kCPU);
  const auto hidden_bnce = visible_bce.unsqueeze(1).logical_not().expand_as(score_bnce);
  const auto weight_bnce =
      torch::_safe_softmax(score_bnce.masked_fill(hidden_bnce, -std::numeric_limits<double>::infinity()), -1);
  const auto measures =
      measure_attention({.score_bnce = score_bnce, .weight_bnce = weight_bnce, .visible_bce = visible_bce});
  for (std::int64_t n = 0; n < heads; ++n) {
    double entropies = 0;
    int queries = 0;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t c = 0; c < tokens; ++c) {
        const auto weight_e = weight_bnce[b][n][c].masked_select(visible_bce[b][c]);
        if (weight_e.numel() < 2) continue;
        entropies -= (weight_e * weight_e.log()).sum().item<double>() / std::log(weight_e.numel());
        ++queries;
      }
    const auto score_s = score_bnce.select(1, n).masked_select(visible_bce);
    const auto head = static_cast<std::size_t>(n);
    CHECK(measures.entropy.at(head) == Approx(entropies / queries).epsilon(1e-10));
    CHECK(measures.score_std.at(head) == Approx(score_s.std(/*unbiased=*/false).item<double>()).epsilon(1e-9));
  }
  CHECK(measures.score_max == Approx(score_bnce.masked_select(visible_bce.unsqueeze(1)).abs().max().item<double>()));
  // The sums of weights of sigmoids or with sinks are not 1.
  const auto larger = measure_attention({.score_bnce = score_bnce,
                                         .weight_bnce = weight_bnce * torch::rand({tokens, 1}, torch::kDouble) * 3,
                                         .visible_bce = visible_bce});
  for (std::size_t n = 0; n < heads; ++n) CHECK(larger.entropy[n] == Approx(measures.entropy[n]).epsilon(1e-10));
}

TEST_CASE("attention to one key has entropy 0, and uniform attention has entropy 1", "[probe]") {
  const auto causal = torch::ones({1, 6, 6}, torch::kBool).tril();
  const auto uniform = causal.to(torch::kDouble).unsqueeze(1) / torch::arange(1, 7, torch::kDouble).view({6, 1});
  const auto scores = torch::zeros({1, 1, 6, 6}, torch::kDouble);
  const auto alike = measure_attention({.score_bnce = scores, .weight_bnce = uniform, .visible_bce = causal});
  CHECK(alike.entropy.at(0) == Approx(1));
  CHECK(alike.score_std.at(0) == 0);
  const auto one = torch::eye(6, torch::kDouble).view({1, 1, 6, 6});
  CHECK(measure_attention({.score_bnce = scores, .weight_bnce = one, .visible_bce = {}}).entropy.at(0) == 0);
  const auto alone = torch::ones({1, 1, 1, 1}, torch::kDouble);  // a query with one visible key has no entropy
  CHECK(std::isnan(measure_attention({.score_bnce = alone, .weight_bnce = alone}).entropy.at(0)));
}

TEST_CASE("norms by depth exclude padding and include a class token", "[probe]") {
  StreamProbe probe{};
  const auto x_bcd = torch::tensor({3.0, 4.0, 6.0, 8.0, 0.0, 100.0}, torch::kDouble).view({1, 3, 2});
  probe.stream(StreamPoint::embedding, x_bcd);
  const auto& stack = probe.stacks().front();
  CHECK(token_norms(stack).embedding == Approx((5 + 10 + 100) / 3.0));
  CHECK(token_norms(stack, torch::tensor({{0, 0, -1}}, torch::kLong)).embedding == Approx(7.5));
  CHECK(token_norms(stack, torch::tensor({{0, -1}}, torch::kLong)).embedding == Approx(7.5));
  CHECK(gradient_norms(stack, {x_bcd}).embedding == Approx(std::sqrt(25 + 100 + 10000)));
  CHECK(gradient_norms(stack, {Tensor()}).embedding == 0);
}

}  // namespace metaformer::test_stream_probe
