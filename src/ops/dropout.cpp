#include "ops/dropout.h"

#include <limits>

#include "ops/bf16_bits.h"
#include "ops/dropout_kernel.h"
#include "ops/parallel.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor drop(const Tensor& given, double share, std::int64_t seed) {
  const auto x = given.contiguous();
  auto y = torch::empty_like(x);
  const DropoutMask mask(share, static_cast<std::uint64_t>(seed));
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

// Keeps the seed alone: backward draws the mask again.
class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double share, std::int64_t seed) {
    context->saved_data["share"] = share;
    context->saved_data["seed"] = seed;
    return drop(x, share, seed);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {drop(gradients[0], context->saved_data["share"].toDouble(), context->saved_data["seed"].toInt()), Tensor(),
            Tensor()};
  }
};

}  // namespace

std::int64_t draw_seed() {
  return torch::randint(std::numeric_limits<std::int64_t>::max() / 2, {1}, torch::kLong).item<std::int64_t>();
}

Tensor dropout(const Tensor& x, double share) {
  if (share == 0) return x;
  const bool known = x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kBFloat16;
  return x.is_cpu() && known ? Dropout::apply(x, share, draw_seed()) : torch::dropout(x, share, /*train=*/true);
}

}  // namespace metaformer
