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
  CHECK(wins({}, torch::kBFloat16, 64, false));
  CHECK_FALSE(wins({}, torch::kBFloat16, 65, false));
  CHECK_FALSE(wins({}, torch::kHalf, 2048, false));
  CHECK(wins({}, torch::kFloat, 2048, false));
  CHECK(wins({}, torch::kBFloat16, 2048, true));
  CHECK(wins({.distance = true}, torch::kBFloat16, 2048, false));
  CHECK(wins({.drops = true}, torch::kBFloat16, 2048, false));
}

TEST_CASE("a table decides before the rule, and dropout before the table", "[kernel_choice]") {
  const ChoiceTable table{.device = "NVIDIA X",
                          .date = "2026-11-23",
                          .cells = {{{ChoiceType::bf16, 64, 64, false, false}, 1.25},
                                    {{ChoiceType::bf16, 4096, 64, false, false}, 0.75},
                                    {{ChoiceType::bf16, 256, 64, true, false}, 1.5},
                                    {{ChoiceType::bf16, 256, 64, false, true}, 1.0},
                                    {{ChoiceType::tf32, 256, 64, false, false}, 1.125}}};
  const auto wins = [&](const KernelUse& use, ChoiceType type, std::int64_t context, bool segmented = false) {
    return kernels_win(use, {.type = type, .context = context, .head_width = 64, .segmented = segmented}, &table);
  };
  // The rule says the opposite of each.
  CHECK_FALSE(wins({}, ChoiceType::bf16, 64));
  CHECK(wins({}, ChoiceType::bf16, 4096));
  CHECK_FALSE(wins({.distance = true}, ChoiceType::bf16, 256));
  CHECK_FALSE(wins({}, ChoiceType::bf16, 256, /*segmented=*/true));
  CHECK_FALSE(wins({}, ChoiceType::tf32, 256));
  // No cell: the rule.
  CHECK(wins({}, ChoiceType::fp32, 256));
  CHECK(wins({}, ChoiceType::fp16, 64));
  CHECK_FALSE(wins({}, ChoiceType::fp16, 1024));
  CHECK(wins({.distance = true}, ChoiceType::tf32, 256));
  // Composed products keep the matrix of dropped weights.
  CHECK(wins({.drops = true}, ChoiceType::bf16, 256));
  CHECK_FALSE(kernels_win({}, {.type = ChoiceType::bf16, .context = 4096, .head_width = 64}, nullptr));
}

TEST_CASE("the log of a training names what was chosen, and by what", "[kernel_choice]") {
  const ChoiceTable table{
      .device = "NVIDIA X",
      .date = "2026-11-23",
      .cells = {{{ChoiceType::bf16, 64, 64, false, false}, 1.25}, {{ChoiceType::bf16, 4096, 64, false, false}, 0.75}}};
  TransformerConfig config;
  config.heads = 2;
  config.width = 128;
  config.context = 64;
  config.dropout = 0;
  config.mixer = MetricOptions{};
  const auto said = [&](Precision precision, const ChoiceTable* given) {
    return describe_kernel_choice(config, precision, /*segmented=*/false, given);
  };
  CHECK(said(Precision::bf16, &table) ==
        "attention: composed products (backend auto, by the table of 2026-11-23: the kernels take 1.25 of the time)");
  CHECK_THAT(said(Precision::bf16, nullptr), Catch::Contains("the fused kernels") && Catch::Contains("by its rule"));
  CHECK_THAT(said(Precision::fp16, &table), Catch::Contains("the fused kernels") && Catch::Contains("by its rule"));
  config.context = 4096;
  CHECK_THAT(said(Precision::bf16, &table), Catch::Contains("the fused kernels") && Catch::Contains("take 0.75"));
  CHECK_THAT(said(Precision::bf16, nullptr), Catch::Contains("composed products") && Catch::Contains("by its rule"));
  config.dropout = 0.1;
  CHECK_THAT(said(Precision::bf16, &table), Catch::Contains("the fused kernels") && Catch::Contains("by its rule"));
  config.mixer = QuadraticOptions{.backend = Backend::fused};
  CHECK_THAT(said(Precision::bf16, &table), Catch::Contains("as model.mixer.backend says"));
  config.mixer = ScaledDotProductOptions{};
  CHECK(said(Precision::bf16, &table).empty());
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
  CHECK_FALSE(takes_kernels(use, p_bnck, p_bnck, Visibility{}, Pass{}));
  TransformerConfig config;
  config.mixer = ScaledDotProductOptions{};
  CHECK(describe_kernel_choice(config, Precision::bf16, false).empty());
  config.mixer = MetricOptions{.values = MixerValues::own};
  CHECK_THAT(describe_kernel_choice(config, Precision::bf16, false), Catch::Contains("composed products"));
  config.mixer = MetricOptions{.backend = Backend::composed};
  CHECK(describe_kernel_choice(config, Precision::bf16, false).empty());
}

}  // namespace metaformer
