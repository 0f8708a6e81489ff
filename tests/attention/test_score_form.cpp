#include "attention/mixer.h"
#include "attention/mixers.h"
#include "support/mixer_options.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("two tokens attend to each other by the score form", "[mixer]") {
  // With two tokens, the first attends to the second with sigmoid(r_12 - r_11): the output tells the score.
  const auto options =
      GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(QuadraticOptions{}),
               MixerConfig(QuadraticOptions{.form = QuadraticForm::full}), MixerConfig(MetricOptions{}),
               MixerConfig(MetricOptions{.constraint = MetricConstraint::psd}),
               MixerConfig(QuadraticOptions{.fixed_norm = true}), MixerConfig(MetricOptions{.fixed_norm = true}));
  torch::manual_seed(2);
  const std::int64_t d = 4;
  const auto mixer = make_mixer(options, {.width = d, .heads = 1});
  mixer->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.normal_(0, 0.7);
  const auto x = torch::randn({1, 2, d}, torch::kDouble);
  const auto form = *mixer->score_form();
  const auto dense = torch::matmul(form.left_nrd[0].t(), form.right_nrd[0]);
  const auto scores = torch::matmul(x[0], torch::matmul(dense, x[0].t())) / 2.0;  // sqrt(k) = 2
  const auto weights = torch::softmax(scores, 1);
  Pass pass;
  const auto both = mixer->forward(x, x, Visibility{}, nullptr, pass)[0];
  const auto alone = [&](int token) {
    const auto one = x.narrow(1, token, 1).contiguous();
    return mixer->forward(one, one, Visibility{}, nullptr, pass)[0][0];
  };
  const auto values = torch::stack({alone(0), alone(1)});
  CHECK(torch::allclose(both, torch::matmul(weights, values), 1e-9, 1e-12));
}

}  // namespace metaformer
