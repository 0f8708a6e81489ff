#include "ops/dropout.h"

#include <c10/core/DeviceGuard.h>

#include "cuda/dropout.h"
#include "ops/bf16_bits.h"
#include "ops/device_stream.h"
#include "ops/dropout_kernel.h"
#include "ops/first_order.h"
#include "ops/parallel.h"

namespace metaformer {

using torch::Tensor;

Tensor drop_on_host(const Tensor& given, double probability, std::uint64_t seed) {
  const auto x = given.contiguous();
  auto y = torch::empty_like(x);
  const DropoutMask mask(probability, seed);
  const auto count = x.numel();
  constexpr std::int64_t grain = 1 << 10;
  constexpr auto together = DropoutMask::together;
  at::parallel_for(0, (count + together - 1) / together, grain, [&](std::int64_t first, std::int64_t last) {
    const auto place = first * together, entries = std::min(last * together, count) - place;
    if (x.scalar_type() == torch::kFloat)
      mask.apply(x.data_ptr<float>() + place, y.data_ptr<float>() + place, entries, place);
    else
      mask.apply(bits_of(x) + place, bits_of(y) + place, entries, place);
  });
  return y;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

cuda::DropoutElement element_of(torch::ScalarType type) {
  switch (type) {
    case torch::kBFloat16:
      return cuda::DropoutElement::bf16;
    case torch::kHalf:
      return cuda::DropoutElement::fp16;
    default:
      return cuda::DropoutElement::fp32;
  }
}

Tensor drop_on_cuda(const Tensor& given, double probability, const RandomDraw& draw) {
  const c10::OptionalDeviceGuard guard(given.device());
  const auto x = given.contiguous();
  auto y = torch::empty_like(x);
  cuda::dropout({.element = element_of(x.scalar_type()),
                 .x = x.data_ptr(),
                 .y = y.data_ptr(),
                 .count = x.numel(),
                 .probability = probability,
                 .key = draw.key.const_data_ptr<std::int64_t>(),
                 .number = draw.number},
                stream_of(x));
  return y;
}

class HostDropout : public torch::autograd::Function<HostDropout> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double probability, std::uint64_t seed) {
    context->saved_data["probability"] = probability;
    context->saved_data["seed"] = static_cast<std::int64_t>(seed);
    return drop_on_host(x, probability, seed);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("dropout");
    const auto seed = static_cast<std::uint64_t>(context->saved_data["seed"].toInt());
    return {drop_on_host(gradients[0], context->saved_data["probability"].toDouble(), seed), {}, {}};
  }
};

// Keeps the key where it lies: forward and backward may be replayed with another.
class CudaDropout : public torch::autograd::Function<CudaDropout> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double probability, const Tensor& key,
                        std::uint64_t number) {
    context->save_for_backward({key});
    context->saved_data["probability"] = probability;
    context->saved_data["number"] = static_cast<std::int64_t>(number);
    return drop_on_cuda(x, probability, {key, number});
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("dropout");
    const RandomDraw draw{context->get_saved_variables()[0],
                          static_cast<std::uint64_t>(context->saved_data["number"].toInt())};
    return {drop_on_cuda(gradients[0], context->saved_data["probability"].toDouble(), draw), {}, {}, {}};
  }
};

Tensor drop(const Tensor& x, double probability, const RandomDraw& draw) {
  if (x.is_cpu()) return HostDropout::apply(x, probability, draw.seed());
  return CudaDropout::apply(x, probability, draw.key, draw.number);
}

bool has_kernel(const Tensor& x) {
  const auto type = x.scalar_type();
  return type == torch::kFloat || type == torch::kBFloat16 || (type == torch::kHalf && x.is_cuda());
}

}  // namespace

Tensor dropout(const Tensor& x, double probability, Pass& pass) {
  if (!pass.training || probability == 0) return x;
  const auto draw = pass.random.next();
  if (has_kernel(x)) return drop(x, probability, draw);
  const auto kept = drop(torch::ones(x.sizes(), x.options().dtype(torch::kFloat)), probability, draw) != 0;
  return x * (kept.to(x.scalar_type()) / (1 - probability));
}

}  // namespace metaformer
