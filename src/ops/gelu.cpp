#include "ops/gelu.h"

#include "ops/bf16_bits.h"
#include "ops/gelu_kernel.h"
#include "ops/parallel.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void compute(const Tensor& x, const Tensor& y, const Tensor& slope) {
  constexpr std::int64_t grain = 1 << 14;
  at::parallel_for(0, x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    if (x.scalar_type() == torch::kFloat) {
      gelu_with_slope(x.data_ptr<float>() + begin, y.data_ptr<float>() + begin, slope.data_ptr<float>() + begin,
                      end - begin);
    } else {
      gelu_with_slope(bits_of(x) + begin, bits_of(y) + begin, bits_of(slope) + begin, end - begin);
    }
  });
}

// Keeps the slope in place of x: no more memory, and backward is one product.
class Gelu : public torch::autograd::Function<Gelu> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    auto y = torch::empty_like(x), slope = torch::empty_like(x);
    compute(x, y, slope);
    context->save_for_backward({slope});
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    // In place: nothing else needs the slope. Going back twice is an error of the library's, which sees the change.
    return {context->get_saved_variables()[0].mul_(gradients[0])};
  }
};

}  // namespace

Tensor gelu(const Tensor& x) {
  const bool known = x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kBFloat16;
  const bool differentiates = torch::GradMode::is_enabled() && x.requires_grad();
  return x.is_cpu() && known && differentiates && x.is_contiguous() ? Gelu::apply(x) : torch::gelu(x);
}

}  // namespace metaformer
