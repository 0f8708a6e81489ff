#include <fmt/format.h>

#include "attention/kernel_choice.h"
#include "config/loader.h"
#include "config/mixer_config.h"
#include "config/model_config.h"
#include "ops/fused_metric.h"
#include "support/torch_catch.h"

namespace metaformer::test_kernel_choice {

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

TEST_CASE("the short backward pass, which is not yet measured, is expected to win nowhere", "[kernel_choice]") {
  for (const auto type : {torch::kBFloat16, torch::kHalf, torch::kFloat})
    for (const std::int64_t context : {1, 64, 256, 257}) CHECK_FALSE(short_backward_expected_to_win(type, context));
}

TEST_CASE("a config may ask the kernels for values of their own at exactly the widths that have such kernels",
          "[kernel_choice]") {
  for (const auto& [precision, type] : {std::pair("fp32", torch::kFloat), {"bf16", torch::kBFloat16}})
    for (const std::int64_t width : {32, 64, 88, 96, 104, 128}) {
      const std::vector<std::string> overrides = {"model.mixer={kind: metric, values: own, backend: fused}",
                                                  "model.heads=1", fmt::format("model.width={}", width),
                                                  fmt::format("train.precision={}", precision)};
      CAPTURE(overrides);
      if (fused_values_fit(type, width))
        CHECK_NOTHROW(default_experiment(overrides));
      else
        CHECK_THROWS_AS(default_experiment(overrides), Error);
    }
}

TEST_CASE("the log line of a training names the chosen kernels and the reason", "[kernel_choice]") {
  TransformerConfig config;
  config.heads = 2;
  config.width = 128;
  config.context = 64;
  config.dropout = 0;
  config.mixer = MetricOptions{};
  const auto said = [&](Precision precision, bool has_kernels = true) {
    return describe_kernel_choice(config, precision, /*segmented=*/false, has_kernels);
  };
  CHECK(said(Precision::bf16) == "attention: the fused kernels (backend auto, by its rule)");
  CHECK_THAT(said(Precision::bf16, /*has_kernels=*/false),
             Catch::Contains("composed products") && Catch::Contains("no kernels"));
  config.context = 4096;
  CHECK(said(Precision::bf16) == "attention: the library's, with kernels around it (backend auto, by its rule)");
  CHECK_THAT(said(Precision::fp16), Catch::Contains("the library's"));
  CHECK_THAT(said(Precision::fp16, /*has_kernels=*/false), Catch::Contains("no kernels"));
  CHECK_THAT(said(Precision::tf32), Catch::Contains("the fused kernels"));
  CHECK_THAT(said(Precision::fp32), Catch::Contains("the fused kernels"));
  config.dropout = 0.1;
  CHECK_THAT(said(Precision::bf16), Catch::Contains("the fused kernels") && Catch::Contains("by its rule"));
  config.mixer = MetricOptions{.values = MixerValues::own};
  CHECK_THAT(said(Precision::bf16), Catch::Contains("the fused kernels") && Catch::Contains("by its rule"));
  config.dropout = 0;
  CHECK_THAT(said(Precision::bf16), Catch::Contains("the library's") && Catch::Contains("by its rule"));
  CHECK_THAT(said(Precision::tf32), Catch::Contains("the fused kernels"));
  config.width = 256;  // heads of 128 features
  CHECK_THAT(said(Precision::bf16), Catch::Contains("the library's"));
  CHECK_THAT(said(Precision::tf32), Catch::Contains("composed products") && Catch::Contains("these options"));
  config.mixer = MetricOptions{};
  CHECK_THAT(said(Precision::tf32), Catch::Contains("the fused kernels"));
  config.mixer = MetricOptions{.backend = Backend::composed};
  CHECK(said(Precision::bf16).empty());
  config.mixer = QuadraticOptions{.backend = Backend::fused};
  CHECK_THAT(said(Precision::bf16), Catch::Contains("as model.mixer.backend says"));
  config.mixer = ScaledDotProductOptions{};
  CHECK(said(Precision::bf16).empty());
}

TEST_CASE("16-bit types use the library's attention with kernels around it, unless another kernel wins",
          "[kernel_choice]") {
  const auto wins = [](const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented) {
    return library_expected_to_win(use, type, context, segmented);
  };
  const KernelUse own_values{.library = true}, shared{.fits = true, .library = true};
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    CHECK(wins(own_values, type, 64, false));
    CHECK_FALSE(wins(shared, type, 64, false));
    CHECK(wins(shared, type, 65, false));
    CHECK_FALSE(wins(own_values, type, 2048, true));
    CHECK_FALSE(wins({.library = true, .drops = true}, type, 2048, false));
    CHECK_FALSE(wins({.fits = true}, type, 2048, false));
  }
  CHECK_FALSE(wins(own_values, torch::kFloat, 2048, false));
}

TEST_CASE("kernels fit exactly the options that they implement", "[kernel_choice]") {
  const MixerShape shape{.width = 64, .heads = 2, .dropout = 0.1};
  CHECK(kernel_use(MetricOptions{}, shape).fits);
  CHECK(kernel_use(MetricOptions{}, shape).drops);
  CHECK(kernel_use(QuadraticOptions{}, shape).fits);
  CHECK(kernel_use(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}, shape).distance);
  CHECK_FALSE(kernel_use(QuadraticOptions{.form = QuadraticForm::full}, shape).fits);
  CHECK_FALSE(kernel_use(MetricOptions{.score = MetricScore::as_published}, shape).fits);
  CHECK(kernel_use(MetricOptions{.values = MixerValues::own}, shape).fits);
  CHECK_FALSE(kernel_use(MetricOptions{}, {.width = 36, .heads = 3}).fits);
  CHECK_FALSE(kernel_use(MetricOptions{}, {.width = 64, .heads = 2, .positions = RotaryPositionsConfig{}}).fits);
}

TEST_CASE("the library's attention fits own values, but not distances or positions that act on scores",
          "[kernel_choice]") {
  const MixerShape shape{.width = 64, .heads = 2, .dropout = 0.1};
  for (const auto values : {MixerValues::own, MixerValues::shared}) {
    CHECK(kernel_use(MetricOptions{.values = values, .qk_norm = true}, shape).library);
    CHECK(kernel_use(QuadraticOptions{.values = values}, shape).library);
  }
  CHECK_FALSE(kernel_use(MetricOptions{.values = MixerValues::unnormalised, .qk_norm = true}, shape).library);
  CHECK_FALSE(
      kernel_use(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}, shape).library);
  CHECK_FALSE(kernel_use(MetricOptions{.score = MetricScore::as_published}, shape).library);
  CHECK_FALSE(kernel_use(QuadraticOptions{.form = QuadraticForm::full}, shape).library);
  CHECK_FALSE(kernel_use(MetricOptions{}, {.width = 36, .heads = 3}).library);
  CHECK_FALSE(kernel_use(MetricOptions{}, {.width = 64, .heads = 2, .positions = RotaryPositionsConfig{}}).library);
  CHECK_FALSE(kernel_use(MetricOptions{}, {.width = 64, .heads = 2, .crosses = true}).library);
}

TEST_CASE("backend auto uses no kernels on the CPU", "[kernel_choice]") {
  const auto p_bnck = torch::ones({1, 2, 4, 32});
  const auto use = kernel_use(MetricOptions{}, {.width = 64, .heads = 2});
  CHECK_FALSE(takes_kernels(use, {p_bnck, p_bnck, {}}, Visibility{}, Pass{}));
  CHECK_FALSE(take_scaled_dot_product({p_bnck, p_bnck, p_bnck}, Visibility{}, /*drops=*/true));
  const auto x_bcd = torch::ones({1, 4, 64}, torch::kBFloat16);
  CHECK_FALSE(takes_library(use, x_bcd, x_bcd, Visibility{}, nullptr, Pass{}));
}

}  // namespace metaformer::test_kernel_choice
