#include "attention/kernel_choice.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/log.h"
#include "cuda/devices.h"
#include "cuda/metric_attention.h"
#include "ops/device.h"
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

ChoiceType type_of(torch::ScalarType type) {
  if (type == torch::kBFloat16) return ChoiceType::bf16;
  if (type == torch::kHalf) return ChoiceType::fp16;
  const bool exact = at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
  return exact ? ChoiceType::fp32 : ChoiceType::tf32;
}

ChoiceType type_of(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return ChoiceType::bf16;
    case Precision::fp16:
      return ChoiceType::fp16;
    case Precision::tf32:
      return ChoiceType::tf32;
    case Precision::fp32:
      break;
  }
  return ChoiceType::fp32;
}

// Of a mixer that has kernels, else nothing.
std::optional<KernelUse> use_in(const TransformerConfig& config) {
  if (const auto* metric = config.mixer.get_if<MetricOptions>()) return kernel_use(*metric, config.mixer_shape());
  if (const auto* quadratic = config.mixer.get_if<QuadraticOptions>())
    return kernel_use(*quadratic, config.mixer_shape());
  return std::nullopt;
}

std::optional<double> measured_ratio(const KernelUse& use, const ChoicePlace& place, const ChoiceTable* table) {
  return table != nullptr && !use.drops ? table->ratio(place) : std::nullopt;
}

}  // namespace

torch::ScalarType stored_as(ChoiceType type) {
  return type == ChoiceType::bf16 ? torch::kBFloat16 : type == ChoiceType::fp16 ? torch::kHalf : torch::kFloat;
}

KernelUse kernel_use(const MetricOptions& options, const MixerShape& shape) {
  return use_of(options, shape, options.score == MetricScore::distance);
}

KernelUse kernel_use(const QuadraticOptions& options, const MixerShape& shape) {
  return use_of(options, shape, /*distance=*/false);
}

bool kernels_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented) {
  constexpr std::int64_t short_context = 64;
  return use.distance || use.drops || segmented || type == torch::kFloat || context <= short_context;
}

bool kernels_win(const KernelUse& use, ChoicePlace place, const ChoiceTable* table) {
  place.distance = use.distance;
  if (const auto ratio = measured_ratio(use, place, table)) return *ratio < 1;
  return kernels_expected_to_win(use, stored_as(place.type), place.context, place.segmented);
}

std::string device_name(torch::Device device) {
  if (device.is_cpu()) return device_description(device);
  return cuda::find_devices().list.at(static_cast<std::size_t>(device.index())).name;
}

const ChoiceTable* choice_table(torch::Device device) {
  static std::mutex mutex;
  static std::map<std::string, FoundChoiceTable> found;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = found.try_emplace(device.str());
  auto& of_device = entry->second;
  if (is_new) {
    of_device = find_choice_table(device_name(device));
    if (!of_device.problem.empty()) log::warning("{}; backend auto goes by its rule", of_device.problem);
  }
  return of_device.table ? &*of_device.table : nullptr;
}

bool takes_kernels(const KernelUse& use, const torch::Tensor& p_bnck, const torch::Tensor& keys_bnek,
                   const Visibility& visibility, const Pass& pass) {
  constexpr std::int64_t rows_of_tile = 16;
  if (pass.wants_scores() || visibility.window > 0) return false;
  if (use.backend == Backend::fused) return true;
  if (use.backend != Backend::automatic || !use.fits) return false;
  const bool few_queries = p_bnck.size(2) < rows_of_tile && p_bnck.size(2) < keys_bnek.size(2);
  if (few_queries || !fused_metric_obstacle(p_bnck, keys_bnek, {}).empty()) return false;
  auto in_this_pass = use;
  in_this_pass.drops = use.drops && pass.training;
  const ChoicePlace place{.type = type_of(p_bnck.scalar_type()),
                          .context = keys_bnek.size(2),
                          .head_width = p_bnck.size(3),
                          .segmented = visibility.has_segments()};
  return kernels_win(in_this_pass, place, in_this_pass.drops ? nullptr : choice_table(p_bnck.device()));
}

std::string describe_kernel_choice(const TransformerConfig& config, Precision precision, bool segmented) {
  const auto use = use_in(config);
  const bool chooses = use && use->backend == Backend::automatic && use->fits;
  if (!chooses) return describe_kernel_choice(config, precision, segmented, nullptr);
  if (cuda::metric_kernel_device() != cuda::MetricDevice::cuda)
    return "attention: composed products (backend auto: this build has no kernels)";
  const torch::Device current(torch::kCUDA, at::accelerator::getDeviceIndex());
  return describe_kernel_choice(config, precision, segmented, choice_table(current));
}

std::string describe_kernel_choice(const TransformerConfig& config, Precision precision, bool segmented,
                                   const ChoiceTable* table) {
  const auto use = use_in(config);
  if (use && use->backend == Backend::fused) return "attention: the fused kernels, as model.mixer.backend says";
  if (!use || use->backend != Backend::automatic) return "";
  if (!use->fits) return "attention: composed products (backend auto: the kernels do not have these options)";
  const ChoicePlace place{.type = type_of(precision),
                          .context = config.context,
                          .head_width = config.mixer_shape().head_width(),
                          .distance = use->distance,
                          .segmented = segmented};
  const auto* chosen = kernels_win(*use, place, table) ? "the fused kernels" : "composed products";
  if (const auto ratio = measured_ratio(*use, place, table))
    return fmt::format("attention: {} (backend auto, by the table of {}: the kernels take {:.2f} of the time)", chosen,
                       table->date, *ratio);
  return fmt::format("attention: {} (backend auto, by its rule)", chosen);
}

}  // namespace metaformer
