#include "attention/mixer_support.h"
#include "config/mixer_config.h"

namespace metaformer::test_score_form {

TEST_CASE("scaled dot product attention equals quadratic attention with U = W_q' W_k, of the rank of a head",
          "[mixer]") {
  const MixerShape shape{.width = 12, .heads = 3};
  const auto sdp = random_mixer(ScaledDotProductOptions{}, shape),
             quadratic = random_mixer(QuadraticOptions{.form = QuadraticForm::full}, shape);
  const torch::NoGradGuard no_grad;
  const auto own = sdp->named_parameters(), theirs = quadratic->named_parameters();
  const auto x = torch::randn({2, 9, 12}, torch::kDouble);
  const auto rank_n = [&] { return torch::linalg_matrix_rank(theirs["full_form"], 1e-9); };
  // The converse is false: a form of a rank above k is not a product of a head's queries and keys.
  CHECK(rank_n().min().item<std::int64_t>() == shape.width);
  const auto rows_3nkd = own["query_key_value.weight"].unflatten(0, {3, 3, 4});
  theirs["full_form"].copy_(torch::matmul(rows_3nkd[0].mT(), rows_3nkd[1]));
  theirs["projection.weight"].copy_(rows_3nkd[2].flatten(0, 1));
  theirs["output.weight"].copy_(own["output.weight"]);
  const auto visibility = self_visibility(true, example_segments());
  CHECK(relative_error(mix(*quadratic, x, visibility), mix(*sdp, x, visibility)) < 1e-12);
  CHECK(rank_n().max().item<std::int64_t>() == shape.head_width());
}

}  // namespace metaformer::test_score_form
