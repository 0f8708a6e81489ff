#include "attention/kernel_choice.h"
#include "config/model_config.h"
#include "support/mixer_options.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("kernels are expected to win where composed products keep matrices, in float32, or in short contexts",
          "[kernel_choice]") {
  const auto wins = [](const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented) {
    return kernels_expected_to_win(use, type, context, segmented);
  };
  CHECK(wins({}, torch::kBFloat16, 512, false));
  CHECK_FALSE(wins({}, torch::kBFloat16, 513, false));
  CHECK_FALSE(wins({}, torch::kHalf, 2048, false));
  CHECK(wins({}, torch::kFloat, 2048, false));
  CHECK(wins({}, torch::kBFloat16, 2048, true));
  CHECK(wins({.distance = true}, torch::kBFloat16, 2048, false));
  CHECK(wins({.drops = true}, torch::kBFloat16, 2048, false));
}

TEST_CASE("kernels fit what they have", "[kernel_choice]") {
  const MixerShape shape{.width = 64, .heads = 2, .dropout = 0.1};
  CHECK(kernel_use(MetricOptions{}, shape).fits);
  CHECK(kernel_use(MetricOptions{}, shape).drops);
  CHECK(kernel_use(QuadraticOptions{}, shape).fits);
  CHECK(kernel_use(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}, shape).distance);
  CHECK_FALSE(kernel_use(QuadraticOptions{.form = QuadraticForm::full}, shape).fits);
  CHECK_FALSE(kernel_use(MetricOptions{.score = MetricScore::as_published}, shape).fits);
  CHECK_FALSE(kernel_use(MetricOptions{.values = MixerValues::own}, shape).fits);
  CHECK_FALSE(kernel_use(MetricOptions{}, {.width = 36, .heads = 3}).fits);
  CHECK_FALSE(kernel_use(MetricOptions{}, {.width = 64, .heads = 2, .positions = RotaryPositionsConfig{}}).fits);
}

TEST_CASE("on the CPU auto takes no kernels, and its reason is told where there is a choice", "[kernel_choice]") {
  const auto p_bnck = torch::ones({1, 2, 4, 32});
  const auto use = kernel_use(MetricOptions{}, {.width = 64, .heads = 2});
  CHECK_FALSE(takes_kernels(use, p_bnck, /*to_themselves=*/true, nullptr, Visibility{}, Pass{}));
  TransformerConfig config;
  config.mixer = ScaledDotProductOptions{};
  CHECK(describe_kernel_choice(config, Precision::bf16, false).empty());
  config.mixer = MetricOptions{.values = MixerValues::own};
  CHECK_THAT(describe_kernel_choice(config, Precision::bf16, false), Catch::Contains("composed products"));
  config.mixer = MetricOptions{.backend = Backend::composed};
  CHECK(describe_kernel_choice(config, Precision::bf16, false).empty());
}

}  // namespace metaformer
