#include "attention/kernel_choice.h"

#include <algorithm>

#include "cuda/metric_attention.h"
#include "ops/fused_metric.h"

namespace metaformer {

namespace {

template <class Options>
KernelUse use_of(const Options& options, const MixerShape& shape, bool distance) {
  const auto known = options.backends();
  const bool has_kernels = std::find(known.begin(), known.end(), Backend::fused) != known.end();
  return {.backend = options.backend,
          .fits = has_kernels && !fused_problem(shape, options.values),
          .distance = distance,
          .drops = shape.dropout > 0};
}

torch::ScalarType type_of(Precision precision) {
  return precision == Precision::bf16 ? torch::kBFloat16 : precision == Precision::fp16 ? torch::kHalf : torch::kFloat;
}

}  // namespace

KernelUse kernel_use(const MetricOptions& options, const MixerShape& shape) {
  return use_of(options, shape, options.score == MetricScore::distance);
}

KernelUse kernel_use(const QuadraticOptions& options, const MixerShape& shape) {
  return use_of(options, shape, /*distance=*/false);
}

bool kernels_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented) {
  constexpr std::int64_t short_context = 512;
  return use.distance || use.drops || segmented || type == torch::kFloat || context <= short_context;
}

bool takes_kernels(const KernelUse& use, const torch::Tensor& p_bnck, bool to_themselves, const MixerState* state,
                   const Visibility& visibility, const Pass& pass) {
  if (!to_themselves || state != nullptr || pass.wants_scores()) return false;
  if (use.backend == Backend::fused) return true;
  if (use.backend != Backend::automatic || !use.fits || !fused_metric_obstacle(p_bnck, {}).empty()) return false;
  auto in_this_pass = use;
  in_this_pass.drops = use.drops && pass.training;
  return kernels_expected_to_win(in_this_pass, p_bnck.scalar_type(), p_bnck.size(2), visibility.has_segments());
}

std::string describe_kernel_choice(const TransformerConfig& config, Precision precision, bool segmented) {
  const auto* metric = config.mixer.get_if<MetricOptions>();
  const auto* quadratic = config.mixer.get_if<QuadraticOptions>();
  if (metric == nullptr && quadratic == nullptr) return "";
  const auto shape = config.mixer_shape();
  const auto use = metric != nullptr ? kernel_use(*metric, shape) : kernel_use(*quadratic, shape);
  const bool has_kernels = cuda::metric_kernel_device() != cuda::MetricDevice::none;
  if (use.backend == Backend::fused) return "attention: the fused kernels, as model.mixer.backend says";
  if (use.backend != Backend::automatic) return "";
  return use.fits && has_kernels && kernels_expected_to_win(use, type_of(precision), config.context, segmented)
             ? "attention: the fused kernels (backend auto: expected to be faster, not yet measured on a GPU)"
             : "attention: composed products (backend auto)";
}

}  // namespace metaformer
