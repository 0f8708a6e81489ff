#include "attention/mixer_support.h"
#include "attention/quadratic.h"
#include "support/failure.h"
#include "support/mixer_options.h"

namespace metaformer {

namespace {

NamedTensors parameters_of(const Mixer& mixer) {
  NamedTensors parameters;
  for (const auto& parameter : mixer.named_parameters()) parameters.emplace_back(parameter.key(), parameter.value());
  return parameters;
}

}  // namespace

TEST_CASE("scaled dot product attention equals quadratic attention with U = W_q' W_k, of the rank of a head",
          "[mixer]") {
  const MixerShape shape{.width = 12, .heads = 3};
  const auto sdp = random_mixer(ScaledDotProductOptions{}, shape);
  const auto quadratic = random_mixer(QuadraticOptions{.form = QuadraticForm::full}, shape);
  const torch::NoGradGuard no_grad;
  const auto converted = full_form_of(parameters_of(*sdp), shape.heads);
  copy_by_name(converted, parameters_of(*quadratic), "scaled dot product");
  const auto x = torch::randn({2, 9, 12}, torch::kDouble);
  const auto visibility = self_visibility(true, example_segments());
  CHECK(relative_error(mix(*quadratic, x, visibility), mix(*sdp, x, visibility)) < 1e-12);
  const auto rank_n = torch::linalg_matrix_rank(quadratic->named_parameters()["full_form"], 1e-9);
  CHECK(rank_n.max().item<std::int64_t>() == shape.head_width());
  // The way back does not exist: a form of more than rank k is no product of a head's queries and keys.
  CHECK(torch::linalg_matrix_rank(
            random_mixer(QuadraticOptions{.form = QuadraticForm::full}, shape)->named_parameters()["full_form"], 1e-9)
            .min()
            .item<std::int64_t>() == shape.width);
}

TEST_CASE("what no form U expresses is refused by name", "[mixer]") {
  const auto with = GENERATE(MixerShape{.width = 12, .heads = 3, .bias = true}, MixerShape{.width = 12, .heads = 3});
  const auto sdp = random_mixer(ScaledDotProductOptions{.qk_norm = !with.bias}, with);
  const auto [code, message] = failure([&] { full_form_of(parameters_of(*sdp), 3); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring(with.bias ? "bias" : "norm.weight"));
}

}  // namespace metaformer
