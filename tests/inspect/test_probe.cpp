// What a probe observes of every mixer, with every kind of positions.

#include <cmath>

#include "attention/mixer_support.h"
#include "attention/score_bias.h"
#include "inspect/recorder.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"
#include "support/mixer_options.h"

namespace metaformer {

namespace {

using torch::Tensor;

constexpr std::int64_t heads = 3, width = 12, tokens = 9;

struct Observed {
  Tensor mixed_bcd, unobserved_bcd;
  Recorder recorder;
  bool causal;
};

Observed observe(const MixerConfig& options, const PositionsConfig& positions, bool causal) {
  const MixerShape shape{.width = width, .heads = heads, .positions = positions};
  const auto mixer = random_mixer(options, shape);
  auto visibility = self_visibility(causal, {});
  if (const auto bias = make_score_bias(positions, heads, causal)) {
    bias->to(torch::kDouble);
    visibility.score_bias_nce = bias->forward(tokens, tokens);
  }
  const torch::NoGradGuard no_grad;
  set_distances(visibility, shape, shared_distance_biases(options, shape), tokens, tokens);
  const auto x_bcd = torch::randn({1, tokens, width}, torch::kDouble);
  Observed observed{.causal = causal};
  Pass pass, with_probe{.probe = &observed.recorder};
  observed.unobserved_bcd = mixer->forward(x_bcd, x_bcd, visibility, nullptr, pass);
  observed.mixed_bcd = mixer->forward(x_bcd, x_bcd, visibility, nullptr, with_probe);
  return observed;
}

void check_attention(const Observed& observed) {
  const auto& [vectors, score_nce, attention_nce] = observed.recorder.latest().value();
  const auto sums_nc = attention_nce.sum(2);
  CHECK(torch::allclose(sums_nc, torch::ones_like(sums_nc), 0, 1e-12));
  auto weight_nce = score_nce.exp();  // of scores that are small here
  if (observed.causal) weight_nce = weight_nce.tril();
  CHECK(torch::allclose(attention_nce, weight_nce / weight_nce.sum(2, true), 1e-9, 1e-12));
}

}  // namespace

TEST_CASE("a probe does not change what a mixer returns, and sees rows of attention that sum to 1", "[probe]") {
  const auto options = any_mixer();
  const bool causal = GENERATE(false, true);
  INFO(describe(options) << (causal ? ", causal" : ""));
  const auto observed = observe(options, NoPositionsConfig{}, causal);
  CHECK(relative_error(observed.mixed_bcd, observed.unobserved_bcd) < 1e-12);
  REQUIRE(observed.recorder.latest().has_value() == options->has_scores());
  if (options->has_scores()) check_attention(observed);
}

TEST_CASE("with every kind of positions a probe sees the attention that mixes the values", "[probe]") {
  const auto options =
      GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(QuadraticOptions{.form = QuadraticForm::full}),
               MixerConfig(MetricOptions{}),
               MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}));
  const auto positions = any_positions();
  const bool causal = GENERATE(false, true);
  INFO(describe(options) << " " << kind_of(positions) << (causal ? ", causal" : ""));
  const auto observed = observe(options, positions, causal);
  CHECK(relative_error(observed.mixed_bcd, observed.unobserved_bcd) < 1e-12);
  check_attention(observed);
}

TEST_CASE("observed scores are those of the observed vectors and form", "[probe]") {
  const auto options = any_mixer();
  if (!options->has_scores()) return;
  INFO(describe(options));
  const auto observed = observe(options, NoPositionsConfig{}, true);
  const auto& [vectors, score_nce, attention_nce] = observed.recorder.latest().value();
  const auto name = describe(options);
  if (name.find("as_published") != std::string::npos) return;  // of no single form
  const auto left_nci = vectors.left_bnci[0], right_nej = vectors.right_bnej[0];
  const auto form_nij = vectors.form_nij.defined()
                            ? vectors.form_nij
                            : torch::eye(left_nci.size(2), torch::kDouble).expand({heads, -1, -1});
  auto expected = torch::einsum("nci,nij,nej->nce", {left_nci, form_nij, right_nej});
  if (name.find("distance") != std::string::npos) {
    const auto difference = left_nci.unsqueeze(2) - right_nej.unsqueeze(1);
    expected = -torch::einsum("ncei,nij,ncej->nce", {difference, form_nij, difference});
  }
  CHECK(relative_error(score_nce, expected / std::sqrt(static_cast<double>(width) / heads)) < 1e-9);
}

}  // namespace metaformer
