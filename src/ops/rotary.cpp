#include "ops/rotary.h"

#include "cpu/rotary.h"
#include "ops/attention.h"
#include "ops/autocast.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class Element>
void rotate_all(const Tensor& x_bnck, const Tensor& y_bnck, const Element* x, Element* y, const Tensor& cos_cr,
                const Tensor& sin_cr, float direction) {
  const auto context = x_bnck.size(2), pairs = cos_cr.size(1);
  const auto tokens = x_bnck.size(0) * context;
  constexpr std::int64_t grain_features = 1 << 13;
  const auto grain = std::max<std::int64_t>(1, grain_features / (x_bnck.size(1) * x_bnck.size(3)));
  at::parallel_for(0, tokens, grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      const auto b = token / context, c = token % context;
      rotate_token(RotaryToken<Element>{.x = x + b * x_bnck.stride(0) + c * x_bnck.stride(2),
                                        .y = y + b * y_bnck.stride(0) + c * y_bnck.stride(2),
                                        .x_stride = x_bnck.stride(1),
                                        .y_stride = y_bnck.stride(1),
                                        .heads = x_bnck.size(1),
                                        .width = x_bnck.size(3),
                                        .pairs = pairs,
                                        .cosines = cos_cr.const_data_ptr<float>() + c * pairs,
                                        .sines = sin_cr.const_data_ptr<float>() + c * pairs,
                                        .direction = direction});
    }
  });
}

Tensor rotated(const Tensor& given_bnck, const Tensor& cos_cr, const Tensor& sin_cr, float direction) {
  const auto x_bnck = given_bnck.stride(3) == 1 ? given_bnck : given_bnck.contiguous();
  auto y_bnck = empty_by_token(x_bnck);
  if (x_bnck.scalar_type() == torch::kFloat) {
    rotate_all(x_bnck, y_bnck, x_bnck.const_data_ptr<float>(), y_bnck.data_ptr<float>(), cos_cr, sin_cr, direction);
  } else {
    rotate_all<std::uint16_t>(x_bnck, y_bnck, bits_of(x_bnck), bits_of(y_bnck), cos_cr, sin_cr, direction);
  }
  return y_bnck;
}

// A rotation's gradient is the rotation back: nothing but the angles is kept.
class RotatePairs : public torch::autograd::Function<RotatePairs> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_bnck, const Tensor& cos_cr, const Tensor& sin_cr) {
    context->save_for_backward({cos_cr, sin_cr});
    return rotated(x_bnck, cos_cr, sin_cr, 1);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("rotate_pairs");
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], -1), {}, {}};
  }
};

Tensor rotate_by_operators(const Tensor& x_bnck, const Tensor& cos_cr, const Tensor& sin_cr) {
  const auto pairs = cos_cr.size(1);
  const auto cos = cos_cr.to(x_bnck.scalar_type()), sin = sin_cr.to(x_bnck.scalar_type());
  const auto first = x_bnck.narrow(3, 0, pairs), second = x_bnck.narrow(3, pairs, pairs);
  return torch::cat(
      {first * cos - second * sin, second * cos + first * sin, x_bnck.narrow(3, 2 * pairs, x_bnck.size(3) - 2 * pairs)},
      3);
}

}  // namespace

Tensor rotate_pairs(const Tensor& x_bnck, const Tensor& cos_cr, const Tensor& sin_cr) {
  const auto type = x_bnck.scalar_type();
  const bool known = x_bnck.is_cpu() && (type == torch::kFloat || type == torch::kBFloat16) && x_bnck.numel() > 0;
  return known ? RotatePairs::apply(x_bnck, cos_cr, sin_cr) : rotate_by_operators(x_bnck, cos_cr, sin_cr);
}

}  // namespace metaformer
