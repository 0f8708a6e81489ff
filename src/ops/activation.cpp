#include "ops/activation.h"

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
Tensor keep(AutogradContext* context, const Tensor& y, const Tensor& slopes) {
  context->save_for_backward({slopes});
  return y;
}

class Activate : public torch::autograd::Function<Activate> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const ActivationConfig& f) {
    const auto y = torch::empty_like(x), slopes = torch::empty_like(x);
    with_elements(x, y, slopes, [&](const auto* from, auto* to, auto* slope) {
      at::parallel_for(0, x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
        activate(function_of(f), from + begin, to + begin, slope + begin, end - begin);
      });
    });
    return keep(context, y, slopes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("an activation");
    // In place: nothing else needs the slopes. Going back twice is an error of the library's, which sees the change.
    return {context->get_saved_variables()[0].mul_(gradients[0]), {}};
  }
};

class Gate : public torch::autograd::Function<Gate> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const ActivationConfig& f) {
    auto sizes = x.sizes().vec();
    const auto width = sizes.back() /= 2;
    const auto y = torch::empty(sizes, x.options()), slopes = torch::empty_like(x);
    const auto rows = y.numel() / width, row_grain = std::max<std::int64_t>(1, grain / width);
    with_elements(x, y, slopes, [&](const auto* from, auto* to, auto* slope) {
      at::parallel_for(0, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
        gate(function_of(f), from + begin * 2 * width, to + begin * width, slope + begin * 2 * width, end - begin,
             width);
      });
    });
    return keep(context, y, slopes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("an activation");
    const auto slopes = context->get_saved_variables()[0];
    slopes.unflatten(-1, {2, -1}).mul_(gradients[0].unsqueeze(-2));
    return {slopes, {}};
  }
};

bool has_kernel(const Tensor& x) {
  const bool known = x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kBFloat16;
  // In training also where x has no gradient: what is frozen computes what it would compute otherwise.
  return x.is_cpu() && known && torch::GradMode::is_enabled() && x.is_contiguous() && x.numel() > 0;
}

using Kind = ActivationFunction::Kind;
ActivationFunction kernel_of(const GeluConfig&) { return {Kind::gelu}; }
ActivationFunction kernel_of(const GeluTanhConfig&) { return {Kind::gelu_tanh}; }
ActivationFunction kernel_of(const ReluConfig&) { return {Kind::relu}; }
ActivationFunction kernel_of(const SiluConfig& f) { return {Kind::silu, static_cast<float>(f.beta)}; }
ActivationFunction kernel_of(const ReluSquaredConfig&) { return {Kind::relu_squared}; }

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

ActivationFunction function_of(const ActivationConfig& f) {
  return std::visit([](const auto& options) { return kernel_of(options); }, f);
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
