#include "attention/kernel_choice.h"

#include <fmt/format.h>

#include <optional>

#include "ops/autocast.h"
#include "ops/library_metric.h"

namespace metaformer {

// The kernel use of the first mixer that has kernels; nullopt if there is none.
static std::optional<KernelUse> use_in(const TransformerConfig& config) {
  const auto use_of = [&]<class Options>(const Options& options) -> std::optional<KernelUse> {
    if constexpr (requires { options.values; }) return kernel_use(options, config.mixer_shape());
    return std::nullopt;
  };
  for (const auto& [mixer, blocks] : config.blocks_by_mixer())
    if (const auto use = std::visit(use_of, *mixer)) return use;
  return std::nullopt;
}

bool short_backward_expected_to_win(torch::ScalarType type, std::int64_t context) {
  constexpr std::int64_t longest = 0;  // tokens; at most 256, for which there are kernels
  return (type == torch::kBFloat16 || type == torch::kHalf) && context <= longest;
}

bool kernels_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented) {
  constexpr std::int64_t short_context = 64;
  return use.distance || use.drops || segmented || type == torch::kFloat || context <= short_context ||
         short_backward_expected_to_win(type, context);
}

// Whether there are fewer queries than rows of a tile, as in a step of generation.
static bool has_few_queries(const MetricVectors& vectors) {
  constexpr std::int64_t rows_of_tile = 16;
  return vectors.p_bnck.size(2) < rows_of_tile && vectors.p_bnck.size(2) < vectors.keys_bnek.size(2);
}

bool takes_kernels(const KernelUse& use, const MetricVectors& vectors, const Visibility& visibility, const Pass& pass) {
  if (pass.wants_scores() || visibility.window > 0 || visibility.place_1.defined()) return false;
  if (use.backend == Backend::fused) return true;
  if (use.backend != Backend::automatic || !use.fits) return false;
  if (has_few_queries(vectors) || !fused_metric_obstacle(vectors, {}).empty()) return false;
  auto in_this_pass = use;
  in_this_pass.drops = use.drops && pass.training;
  return kernels_expected_to_win(in_this_pass, vectors.p_bnck.scalar_type(), vectors.keys_bnek.size(2),
                                 visibility.has_segments());
}

bool take_scaled_dot_product(const MetricVectors& vectors, const Visibility& visibility, bool drops) {
  if (visibility.window > 0 || !(drops || visibility.has_segments())) return false;
  return !has_few_queries(vectors) && fused_metric_obstacle(vectors, {}).empty();
}

bool library_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented) {
  const bool fused_wins = use.fits && kernels_expected_to_win(use, type, context, segmented);
  return use.library && !fused_wins && !use.drops && !segmented && (type == torch::kBFloat16 || type == torch::kHalf);
}

bool takes_library(const KernelUse& use, const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                   const Visibility& visibility, const MixerState* state, const Pass& pass) {
  if (use.backend != Backend::automatic || !use.library) return false;
  if (state != nullptr || !context_bed.is_same(x_bcd) || x_bcd.numel() == 0) return false;
  if (pass.wants_scores() || visibility.window > 0) return false;
  auto in_this_pass = use;
  in_this_pass.drops = use.drops && pass.training;
  const auto type = product_type(x_bcd);
  return library_expected_to_win(in_this_pass, type, x_bcd.size(1), visibility.has_segments()) &&
         library_metric_obstacle(type, x_bcd.device()).empty();
}

std::string describe_kernel_choice(const TransformerConfig& config, Precision precision, bool segmented,
                                   bool has_kernels) {
  const auto use = use_in(config);
  if (use && use->backend == Backend::fused) return "attention: the fused kernels, as model.mixer.backend says";
  if (!use || use->backend != Backend::automatic) return "";
  const auto type = precision == Precision::bf16   ? torch::kBFloat16
                    : precision == Precision::fp16 ? torch::kHalf
                                                   : torch::kFloat;
  const bool by_library = library_expected_to_win(*use, type, config.context, segmented);
  const bool fits = use->fits && (type != torch::kFloat || use->fits_in_float32);
  if (!fits && !by_library) return "attention: composed products (backend auto: the kernels do not have these options)";
  if (!has_kernels) return "attention: composed products (backend auto: this build has no kernels)";
  const bool wins = kernels_expected_to_win(*use, type, config.context, segmented);
  return fmt::format("attention: {} (backend auto, by its rule)", by_library ? "the library's, with kernels around it"
                                                                  : wins     ? "the fused kernels"
                                                                             : "composed products");
}

}  // namespace metaformer
