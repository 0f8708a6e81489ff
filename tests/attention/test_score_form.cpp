#include "attention/mixer_support.h"
#include "config/mixer_config.h"

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

TEST_CASE("scaled dot product attention equals quadratic attention with U = W_q' W_k, of the rank of a head",
          "[mixer]") {
  const MixerShape shape{.width = 12, .heads = 3};
  const auto sdp = random_mixer(ScaledDotProductOptions{}, shape),
             quadratic = random_mixer(QuadraticOptions{.form = QuadraticForm::full}, shape);
  const torch::NoGradGuard no_grad;
  const auto own = sdp->named_parameters(), theirs = quadratic->named_parameters();
  const auto x = torch::randn({2, 9, 12}, torch::kDouble);
  const auto rank_n = [&] { return torch::linalg_matrix_rank(theirs["full_form"], 1e-9); };
  // The way back does not exist: a form of more than rank k is no product of a head's queries and keys.
  CHECK(rank_n().min().item<std::int64_t>() == shape.width);
  const auto rows_3nkd = own["query_key_value.weight"].unflatten(0, {3, 3, 4});
  theirs["full_form"].copy_(torch::matmul(rows_3nkd[0].mT(), rows_3nkd[1]));
  theirs["projection.weight"].copy_(rows_3nkd[2].flatten(0, 1));
  theirs["output.weight"].copy_(own["output.weight"]);
  const auto visibility = self_visibility(true, example_segments());
  CHECK(relative_error(mix(*quadratic, x, visibility), mix(*sdp, x, visibility)) < 1e-12);
  CHECK(rank_n().max().item<std::int64_t>() == shape.head_width());
}

}  // namespace metaformer
