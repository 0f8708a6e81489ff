#include "ops/dropout.h"

#include <c10/core/DeviceGuard.h>

#include "cpu/dropout.h"
#include "cuda/dropout.h"
#include "ops/device.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

using cuda::DropoutPlaces;

// The properties of a mask that do not follow from the tensor's sizes.
struct Drop {
  double probability = 0;
  bool is_weights = false;     // x has attention weights, [b, n, c, c']
  Tensor start_l = {};         // place of each row of x in the mask; undefined: by its index in the step
  std::int64_t first_row = 0;  // of x, in the step; 0 if rows share a mask
  std::uint64_t number = 0;    // the draw's number; on the CPU its seed
};

DropoutPlaces places_of(const Tensor& x, const Drop& drop) {
  DropoutPlaces places{.run = x.numel() / x.size(0), .first_row = drop.first_row};
  if (drop.is_weights) {
    places.run = x.size(3);
    places.heads = x.size(1);
    places.queries = x.size(2);
  }
  if (drop.start_l.defined()) places.starts = drop.start_l.const_data_ptr<std::int64_t>();
  return places;
}

template <class Element>
void drop_on_host(const DropoutMask& mask, const DropoutPlaces& places, const Element* x, Element* y,
                  std::int64_t runs) {
  constexpr std::int64_t grain = 1 << 10;
  constexpr auto together = DropoutMask::together;
  const auto groups = (places.run.value() + together - 1) / together;  // in a run
  at::parallel_for(0, runs * groups, grain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const auto offset = begin / groups * places.run.value() + begin % groups * together;
      const auto stretch = cuda::stretch_from(places, offset);
      const auto count = std::min(stretch.count, (end - begin) * together);
      mask.apply(x + offset, y + offset, count, stretch.place);
      begin += (count + together - 1) / together;
    }
  });
}

// `key`: undefined on the CPU.
Tensor dropped(const Tensor& given, const Drop& drop, const Tensor& key) {
  const c10::OptionalDeviceGuard guard(given.device());
  const auto x = given.contiguous();
  const auto y = torch::empty_like(x);
  if (x.numel() == 0) return y;
  const auto places = places_of(x, drop);
  if (x.is_cpu())
    with_element(x, [&]<class Element>(Element) {
      drop_on_host<Element>(DropoutMask(drop.probability, drop.number), places, elements_of<Element>(x),
                            elements_of<Element>(y), x.numel() / places.run.value());
    });
  else
    cuda::dropout({.element = row_element(x.scalar_type()),
                   .x = x.data_ptr(),
                   .y = y.data_ptr(),
                   .count = x.numel(),
                   .probability = drop.probability,
                   .key = key.const_data_ptr<std::int64_t>(),
                   .number = drop.number,
                   .places = places},
                  stream_of(x));
  return y;
}

// Keeps a GPU's key tensor, not its value: forward and backward may be replayed with another key.
Tensor drop_as_node(const Tensor& x, const Drop& drop, const Tensor& key) {
  const auto forward = [&](Tensors& saved) {
    saved = {x.is_cpu() ? Tensor() : key};
    return dropped(x, drop, saved[0]);
  };
  return own_node("dropout", {x}, forward,
                  [drop](const Backward& in) -> Tensors { return {dropped(in.dy[0], drop, in.saved[0])}; });
}

bool has_kernel(const Tensor& x) {
  const auto type = x.scalar_type();
  return type == torch::kFloat || type == torch::kBFloat16 || (type == torch::kHalf && x.is_cuda());
}

Tensor drop_in_training(const Tensor& x, Pass& pass, Drop drop, bool is_shared = false) {
  if (!pass.training || drop.probability == 0) return x;
  const auto draw = pass.random.next();
  if (!is_shared) drop.first_row = draw.first_row;
  drop.number = x.is_cpu() ? draw.seed() : draw.number;
  if (has_kernel(x)) return drop_as_node(x, drop, draw.key);
  const auto kept = drop_as_node(torch::ones(x.sizes(), x.options().dtype(torch::kFloat)), drop, draw.key) != 0;
  return x * (kept.to(x.scalar_type()) / (1 - drop.probability));
}

}  // namespace

Tensor dropout(const Tensor& x, double probability, Pass& pass) {
  return drop_in_training(x, pass, {.probability = probability});
}

Tensor dropout_of_weights(const Tensor& weight_bnce, double probability, Pass& pass) {
  return drop_in_training(weight_bnce, pass, {.probability = probability, .is_weights = true});
}

Tensor dropout_of_segments(const Tensor& x_ld, const Tensor& row_segment_l2, double probability, Pass& pass) {
  if (!row_segment_l2.defined()) return dropout(x_ld, probability, pass);
  if (!pass.training || probability == 0) return x_ld;
  const auto row_l = row_segment_l2.select(1, 0) + pass.random.first_row(), segment_l = row_segment_l2.select(1, 1);
  const auto start_l = row_l.bitwise_left_shift(cuda::row_shift) + segment_l.bitwise_left_shift(cuda::segment_shift);
  return drop_in_training(x_ld, pass, {.probability = probability, .start_l = start_l});
}

Tensor dropout_of_shared(const Tensor& x, double probability, Pass& pass) {
  return drop_in_training(x, pass, {.probability = probability}, /*is_shared=*/true);
}

}  // namespace metaformer
