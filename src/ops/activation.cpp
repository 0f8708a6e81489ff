#include "ops/activation.h"

#include "cpu/activation.h"
#include "ops/autocast.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t grain = 1 << 14;  // elements

// use(pointers to the tensors' elements), of the type that x has.
template <class Use>
void with_elements(const Tensor& x, const Tensor& y, const Tensor& slope, Use use) {
  if (x.scalar_type() == torch::kFloat)
    use(x.const_data_ptr<float>(), y.data_ptr<float>(), slope.data_ptr<float>());
  else
    use(static_cast<const std::uint16_t*>(bits_of(x)), bits_of(y), bits_of(slope));
}

// Keeps the slopes in place of x: no more memory, and backward is one product.
class Activate : public torch::autograd::Function<Activate> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const ActivationConfig& f) {
    return keep(context, activate_with_slopes(f, x));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("an activation");
    // In place: nothing else needs the slopes. Going back twice is an error of the library's, which sees the change.
    return {multiply_slopes(context->get_saved_variables()[0], gradients[0]), {}};
  }
  static Tensor keep(AutogradContext* context, const Activated& activated) {
    context->save_for_backward({activated.slopes});
    return activated.y;
  }
};

class Gate : public torch::autograd::Function<Gate> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const ActivationConfig& f) {
    return Activate::keep(context, gate_with_slopes(f, x));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return Activate::backward(context, std::move(gradients));
  }
};

bool has_kernel(const Tensor& x) {
  const bool known = x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kBFloat16;
  // In training also where x has no gradient: what is frozen computes what it would compute otherwise.
  return x.is_cpu() && known && torch::GradMode::is_enabled() && x.is_contiguous() && x.numel() > 0;
}

Tensor by_operators(const GeluConfig&, const Tensor& x) { return torch::gelu(x); }
Tensor by_operators(const GeluTanhConfig&, const Tensor& x) { return torch::gelu(x, "tanh"); }
Tensor by_operators(const ReluConfig&, const Tensor& x) { return torch::relu(x); }
Tensor by_operators(const SiluConfig& f, const Tensor& x) {
  return f.beta == 1 ? torch::silu(x) : x * torch::sigmoid(f.beta * x);
}
Tensor by_operators(const ReluSquaredConfig&, const Tensor& x) { return torch::relu(x).square(); }

Tensor activate_by_operators(const ActivationConfig& f, const Tensor& x) {
  return std::visit([&](const auto& options) { return by_operators(options, x); }, f);
}

}  // namespace

Activated activate_with_slopes(const ActivationConfig& f, const Tensor& x) {
  Activated result{torch::empty_like(x), torch::empty_like(x)};
  with_elements(x, result.y, result.slopes, [&](const auto* from, auto* to, auto* slopes) {
    at::parallel_for(0, x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      activate(f, from + begin, to + begin, slopes + begin, end - begin);
    });
  });
  return result;
}

Activated gate_with_slopes(const ActivationConfig& f, const Tensor& x) {
  auto shape = x.sizes().vec();
  const auto width = shape.back() /= 2;
  Activated result{torch::empty(shape, x.options()), torch::empty_like(x)};
  with_elements(x, result.y, result.slopes, [&](const auto* from, auto* to, auto* slopes) {
    at::parallel_for(0, result.y.numel() / width, std::max<std::int64_t>(1, grain / width),
                     [&](std::int64_t begin, std::int64_t end) {
                       gate(f, from + begin * 2 * width, to + begin * width, slopes + begin * 2 * width, end - begin,
                            width);
                     });
  });
  return result;
}

Tensor multiply_slopes(const Tensor& slopes, const Tensor& dy) {
  if (slopes.size(-1) == dy.size(-1)) return slopes.mul_(dy);
  slopes.unflatten(-1, {2, -1}).mul_(dy.unsqueeze(-2));
  return slopes;
}

Tensor activate(const ActivationConfig& f, const Tensor& x) {
  // A rectifier is a comparison: the library's needs no slope.
  return has_kernel(x) && !is<ReluConfig>(f) ? Activate::apply(x, f) : activate_by_operators(f, x);
}

Tensor gate(const ActivationConfig& f, const Tensor& x) {
  if (has_kernel(x)) return Gate::apply(x, f);
  const auto parts = x.chunk(2, -1);
  return activate_by_operators(f, parts[0]) * parts[1];
}

}  // namespace metaformer
