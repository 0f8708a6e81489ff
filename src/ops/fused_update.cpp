#include "ops/fused_update.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "cuda/adam.h"
#include "cuda/gradient_norm.h"
#include "ops/autocast.h"
#include "ops/device.h"

namespace metaformer {

using torch::Tensor;

namespace {

const float* number_at(const std::optional<Tensor>& scalar) {
  return scalar ? scalar->const_data_ptr<float>() : nullptr;
}

cuda::AdamRange range_of(const FusedAdamRange& range) {
  return {.values = range.values.data_ptr<float>(),
          .gradients = range.gradients.const_data_ptr<float>(),
          .first_moments = range.first_moments.data_ptr<float>(),
          .second_moments = range.second_moments.data_ptr<float>(),
          .copies = range.copies.defined() ? static_cast<std::uint16_t*>(range.copies.data_ptr()) : nullptr,
          .count = range.values.numel(),
          .weight_decay = static_cast<float>(range.weight_decay),
          .rate = static_cast<float>(range.rate)};
}

}  // namespace

Tensor fused_gradient_norm(const Tensor& gradients, const FusedNorm& given) {
  const c10::OptionalDeviceGuard guard(gradients.device());
  const auto norm = torch::empty({}, gradients.options()),
             partial = torch::empty({cuda::gradient_norm_parts(gradients.numel())}, gradients.options());
  cuda::gradient_norm({.gradients = gradients.const_data_ptr<float>(),
                       .count = gradients.numel(),
                       .partial = partial.data_ptr<float>(),
                       .divisor = number_at(given.divisor),
                       .norm = norm.data_ptr<float>(),
                       .found_inf = given.found_inf ? given.found_inf->data_ptr<float>() : nullptr,
                       .factor = given.factor.defined() ? given.factor.data_ptr<float>() : nullptr,
                       .limit = given.limit},
                      stream_of(gradients));
  return norm;
}

void fused_adam(const FusedAdam& adam, const std::vector<FusedAdamRange>& ranges, const Tensor& steps,
                const std::variant<double, Tensor>& learning_rate) {
  const c10::OptionalDeviceGuard guard(steps.device());
  const auto constants = torch::empty({3}, steps.options());
  const auto* given = std::get_if<double>(&learning_rate);
  const auto* on_device = std::get_if<Tensor>(&learning_rate);
  std::vector<cuda::AdamRange> all;
  for (const auto& range : ranges) all.push_back(range_of(range));
  const bool is_fp16 = std::ranges::any_of(ranges, [](const FusedAdamRange& range) {
    return range.copies.defined() && range.copies.scalar_type() == torch::kHalf;
  });
  cuda::adam_step({.decoupled = adam.decoupled,
                   .copy_element = is_fp16 ? cuda::RowElement::fp16 : cuda::RowElement::bf16,
                   .beta1 = static_cast<float>(adam.betas.at(0)),
                   .beta2 = static_cast<float>(adam.betas.at(1)),
                   .epsilon = static_cast<float>(adam.epsilon),
                   .steps = steps.data_ptr<float>(),
                   .learning_rate = on_device != nullptr ? on_device->const_data_ptr<float>() : nullptr,
                   .given_rate = given != nullptr ? static_cast<float>(*given) : 0,
                   .factor = number_at(adam.factor),
                   .divisor = number_at(adam.divisor),
                   .found_inf = number_at(adam.found_inf),
                   .constants = constants.data_ptr<float>()},
                  all.data(), std::ssize(all), stream_of(steps));
  for (const auto& range : ranges)
    if (!range.copies.defined()) count_write(range.values);
}

}  // namespace metaformer
