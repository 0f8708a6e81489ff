#include "ops/dropout.h"

#include <c10/core/DeviceGuard.h>

#include "cpu/dropout.h"
#include "cuda/dropout.h"
#include "ops/autocast.h"
#include "ops/device.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

namespace metaformer {

using torch::Tensor;

namespace {

using cuda::DropoutPlaces;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Places of a tensor's entries, but for those that its sizes tell.
struct Layout {
  std::int64_t first_row = 0;
  bool is_weights = false;  // [b, n, c, c']
  Tensor start_l = {};      // where each row of x begins; undefined: they are rows of the step
};

DropoutPlaces places_of(const Tensor& x, const Layout& layout) {
  DropoutPlaces places{.run = x.numel() / x.size(0), .first_row = layout.first_row};
  if (layout.is_weights) {
    places.run = x.size(3);
    places.heads = x.size(1);
    places.queries = x.size(2);
  }
  if (layout.start_l.defined()) places.starts = layout.start_l.const_data_ptr<std::int64_t>();
  return places;
}

// Some entries of a tensor at its data, of one run.
template <class Element>
void apply(const DropoutMask& mask, const DropoutPlaces& places, const Element* x, Element* y, std::int64_t run,
           std::int64_t first, std::int64_t count) {
  const auto offset = run * places.run + first;
  mask.apply(x + offset, y + offset, count, cuda::first_place(places, run) + first);
}

template <class Element>
void apply_to_all(const DropoutMask& mask, const DropoutPlaces& places, const Element* x, Element* y,
                  std::int64_t runs) {
  constexpr std::int64_t grain = 1 << 10;
  constexpr auto together = DropoutMask::together;
  const auto groups = (places.run + together - 1) / together;  // of a run
  at::parallel_for(0, runs * groups, grain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const auto run = begin / groups, group = begin % groups, last = std::min(groups, group + end - begin);
      const auto first = group * together;
      apply(mask, places, x, y, run, first, std::min(last * together, places.run) - first);
      begin += last - group;
    }
  });
}

Tensor drop_on_host(const Tensor& given, double probability, std::uint64_t seed, const Layout& layout) {
  const auto x = given.contiguous();
  auto y = torch::empty_like(x);
  if (x.numel() == 0) return y;
  const DropoutMask mask(probability, seed);
  const auto places = places_of(x, layout);
  const auto runs = x.numel() / places.run;
  if (x.scalar_type() == torch::kFloat)
    apply_to_all(mask, places, x.const_data_ptr<float>(), y.data_ptr<float>(), runs);
  else
    apply_to_all(mask, places, static_cast<const std::uint16_t*>(bits_of(x)), bits_of(y), runs);
  return y;
}

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

Tensor drop_on_cuda(const Tensor& given, double probability, const RandomDraw& draw, const Layout& layout) {
  const c10::OptionalDeviceGuard guard(given.device());
  const auto x = given.contiguous();
  auto y = torch::empty_like(x);
  if (x.numel() == 0) return y;
  cuda::dropout({.element = element_of(x.scalar_type()),
                 .x = x.data_ptr(),
                 .y = y.data_ptr(),
                 .count = x.numel(),
                 .probability = probability,
                 .key = draw.key.const_data_ptr<std::int64_t>(),
                 .number = draw.number,
                 .places = places_of(x, layout)},
                stream_of(x));
  return y;
}

void keep(AutogradContext& context, const Layout& layout) {
  context.saved_data["first_row"] = layout.first_row;
  context.saved_data["is_weights"] = layout.is_weights;
}

Layout kept_layout(AutogradContext& context, const Tensor& start_l) {
  return {.first_row = context.saved_data["first_row"].toInt(),
          .is_weights = context.saved_data["is_weights"].toBool(),
          .start_l = start_l};
}

class HostDropout : public torch::autograd::Function<HostDropout> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double probability, std::uint64_t seed,
                        const Layout& layout) {
    context->save_for_backward({layout.start_l});
    context->saved_data["probability"] = probability;
    context->saved_data["seed"] = static_cast<std::int64_t>(seed);
    keep(*context, layout);
    return drop_on_host(x, probability, seed, layout);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("dropout");
    const auto seed = static_cast<std::uint64_t>(context->saved_data["seed"].toInt());
    const auto layout = kept_layout(*context, context->get_saved_variables()[0]);
    return {drop_on_host(gradients[0], context->saved_data["probability"].toDouble(), seed, layout), {}, {}, {}};
  }
};

// Keeps the key where it lies: forward and backward may be replayed with another.
class CudaDropout : public torch::autograd::Function<CudaDropout> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double probability, const Tensor& key,
                        std::uint64_t number, const Layout& layout) {
    context->save_for_backward({key, layout.start_l});
    context->saved_data["probability"] = probability;
    context->saved_data["number"] = static_cast<std::int64_t>(number);
    keep(*context, layout);
    return drop_on_cuda(x, probability, {.key = key, .number = number}, layout);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("dropout");
    const auto saved = context->get_saved_variables();
    const RandomDraw draw{.key = saved[0], .number = static_cast<std::uint64_t>(context->saved_data["number"].toInt())};
    return {drop_on_cuda(gradients[0], context->saved_data["probability"].toDouble(), draw,
                         kept_layout(*context, saved[1])),
            {},
            {},
            {},
            {}};
  }
};

Tensor drop(const Tensor& x, double probability, const RandomDraw& draw, const Layout& layout) {
  if (x.is_cpu()) return HostDropout::apply(x, probability, draw.seed(), layout);
  return CudaDropout::apply(x, probability, draw.key, draw.number, layout);
}

bool has_kernel(const Tensor& x) {
  const auto type = x.scalar_type();
  return type == torch::kFloat || type == torch::kBFloat16 || (type == torch::kHalf && x.is_cuda());
}

Tensor drop_in_training(const Tensor& x, double probability, Pass& pass, Layout layout, bool is_shared = false) {
  if (!pass.training || probability == 0) return x;
  const auto draw = pass.random.next();
  if (!is_shared) layout.first_row = draw.first_row;
  if (has_kernel(x)) return drop(x, probability, draw, layout);
  const auto kept = drop(torch::ones(x.sizes(), x.options().dtype(torch::kFloat)), probability, draw, layout) != 0;
  return x * (kept.to(x.scalar_type()) / (1 - probability));
}

}  // namespace

Tensor dropout(const Tensor& x, double probability, Pass& pass) { return drop_in_training(x, probability, pass, {}); }

Tensor dropout_of_weights(const Tensor& weight_bnce, double probability, Pass& pass) {
  return drop_in_training(weight_bnce, probability, pass, {.is_weights = true});
}

Tensor dropout_of_segments(const Tensor& x_ld, const Tensor& row_segment_l2, double probability, Pass& pass) {
  if (!row_segment_l2.defined()) return dropout(x_ld, probability, pass);
  if (!pass.training || probability == 0) return x_ld;
  const auto row_l = row_segment_l2.select(1, 0) + pass.random.first_row(), segment_l = row_segment_l2.select(1, 1);
  const auto start_l = row_l.bitwise_left_shift(cuda::row_shift) + segment_l.bitwise_left_shift(cuda::segment_shift);
  return drop_in_training(x_ld, probability, pass, {.start_l = start_l});
}

Tensor dropout_of_shared(const Tensor& x, double probability, Pass& pass) {
  return drop_in_training(x, probability, pass, {}, /*is_shared=*/true);
}

HostMask HostMask::of(double probability, Pass& pass) {
  if (!pass.training || probability == 0) return {};
  const auto draw = pass.random.next();
  return {.probability = probability, .seed = draw.seed(), .first_row = draw.first_row};
}

void HostMask::keep_in(AutogradContext& context) const {
  auto& data = context.saved_data;
  data["probability"] = probability;
  data["seed"] = static_cast<std::int64_t>(seed);
  data["first_row"] = first_row;
}

HostMask HostMask::kept_in(AutogradContext& context) {
  auto& data = context.saved_data;
  return {.probability = data["probability"].toDouble(),
          .seed = static_cast<std::uint64_t>(data["seed"].toInt()),
          .first_row = data["first_row"].toInt()};
}

}  // namespace metaformer
