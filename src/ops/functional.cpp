#include "ops/functional.h"

#include "cpu/cross_entropy.h"
#include "cpu/rms_norm.h"
#include "cpu/rotary.h"
#include "ops/attention.h"
#include "ops/fused_cross_entropy.h"
#include "ops/fused_functional.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

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

// In training also if x has no gradient, so that frozen layers compute the same as trained ones.
bool takes_activation_kernel(const Tensor& x) {
  return fits_cpu_kernels(x) && torch::GradMode::is_enabled() && x.is_contiguous() && x.dim() > 0;
}

// `parts`: 2 for a gate, else 1. Saves the slopes instead of x, which takes no more memory and makes backward one
// product.
Tensor activate_by_kernel(const ActivationConfig& f, const Tensor& x, std::int64_t parts) {
  const auto forward = [&](Tensors& saved) {
    auto sizes = x.sizes().vec();
    const auto width = sizes.back() /= parts, step = parts * width;
    const auto y = torch::empty(sizes, x.options()), slopes = torch::empty_like(x);
    with_element(x, [&]<class Element>(Element) {
      for_rows(x.numel() / step, width, [&](std::int64_t begin, std::int64_t end) {
        const auto* from = elements_of<Element>(x) + begin * step;
        auto *to = elements_of<Element>(y) + begin * width, *slope = elements_of<Element>(slopes) + begin * step;
        parts == 1 ? activate(function_of(f), from, to, slope, (end - begin) * width)
                   : gate(function_of(f), from, to, slope, end - begin, width);
      });
    });
    saved = {slopes};
    return y;
  };
  return own_node("an activation", {x}, forward, [parts](const Backward& in) -> Tensors {
    // In place, because nothing else needs the slopes. A second backward is an error of autograd, which detects the
    // change.
    const auto& slopes = in.saved[0];
    slopes.unflatten(-1, {parts, -1}).mul_(in.dy[0].unsqueeze(-2));
    return {slopes};
  });
}

}  // namespace

ActivationFunction function_of(const ActivationConfig& f) {
  return std::visit([](const auto& options) { return kernel_of(options); }, f);
}

static Tensor with_bias(const Tensor& x, const Tensor& bias) {
  return bias.defined() ? x + bias.to(x.scalar_type()) : x;
}

Tensor activate(const ActivationConfig& f, const Tensor& given, const Tensor& bias) {
  if (has_fused_activation(given, bias)) return fused_activation(function_of(f), given, bias, /*gated=*/false);
  const auto x = with_bias(given, bias);
  // LibTorch's ReLU needs no slopes, because its gradient is a comparison.
  return takes_activation_kernel(x) && !is<ReluConfig>(f) ? activate_by_kernel(f, x, 1) : activate_by_operators(f, x);
}

Tensor gate(const ActivationConfig& f, const Tensor& given, const Tensor& bias) {
  if (has_fused_activation(given, bias)) return fused_activation(function_of(f), given, bias, /*gated=*/true);
  const auto x = with_bias(given, bias);
  if (takes_activation_kernel(x)) return activate_by_kernel(f, x, 2);
  const auto parts = x.chunk(2, -1);
  return activate_by_operators(f, parts[0]) * parts[1];
}

bool activation_adds_bias(const Tensor& bias) {
  return bias.defined() && bias.is_cuda() && bias.scalar_type() == torch::kFloat && bias.is_contiguous();
}

// Sums the gain's gradient over chunks of rows, then over the chunks, which depend only on the number of rows.
static Tensors rms_norm_backward(const Backward& in) {
  constexpr std::int64_t most_chunks = 16;
  const auto &x = in.saved[0], &gain_d = in.saved[1], &factor_r = in.saved[2], dy = in.dy[0].contiguous();
  const auto width = gain_d.size(0), rows = x.numel() / width;
  const auto dx = torch::empty_like(x);
  const auto chunk = std::max<std::int64_t>(1, (rows + most_chunks - 1) / most_chunks);
  const auto chunks = (rows + chunk - 1) / chunk;
  const auto dgain_nd = torch::zeros({chunks, width}, x.options());
  for_rows(chunks, chunk * width, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto first = i * chunk;
      rms_norm_gradients({.x = x.const_data_ptr<float>() + first * width,
                          .gain = gain_d.const_data_ptr<float>(),
                          .factors = factor_r.const_data_ptr<float>() + first,
                          .dy = dy.const_data_ptr<float>() + first * width,
                          .rows = std::min(chunk, rows - first),
                          .width = width},
                         dx.data_ptr<float>() + first * width, dgain_nd.data_ptr<float>() + i * width);
    }
  });
  return {dx, dgain_nd.sum(0)};
}

Tensor rms_norm(const Tensor& given, const Tensor& given_gain_d, double epsilon) {
  const auto type = torch::promote_types(given.scalar_type(), given_gain_d.scalar_type());
  const auto wide = given.to(type), gain_d = given_gain_d.to(type);
  const auto width = gain_d.size(0);
  if (!fits_cpu_kernels(wide) || type != torch::kFloat || !gain_d.is_contiguous())
    return torch::rms_norm(wide, {width}, gain_d, epsilon);
  const auto forward = [&](Tensors& saved) {
    const auto x = wide.contiguous();
    const auto rows = x.numel() / width;
    const auto y = torch::empty_like(x), factor_r = torch::empty({rows}, x.options());
    for_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
      normalise_by_rms(x.const_data_ptr<float>() + begin * width, gain_d.const_data_ptr<float>(),
                       y.data_ptr<float>() + begin * width, factor_r.data_ptr<float>() + begin, end - begin, width,
                       static_cast<float>(epsilon));
    });
    saved = {x, gain_d, factor_r};
    return y;
  };
  return own_node("rms_norm", {wide, gain_d}, forward, rms_norm_backward);
}

// direction: -1 rotates back.
static Tensor rotated(const Tensor& given_bnck, const Tensor& cos_cr, const Tensor& sin_cr, float direction) {
  const auto x_bnck = with_features_together(given_bnck);
  const auto y_bnck = empty_by_token(x_bnck);
  const auto context = x_bnck.size(2), pairs = cos_cr.size(1);
  with_element(x_bnck, [&]<class Element>(Element) {
    for_rows(x_bnck.size(0) * context, x_bnck.size(1) * x_bnck.size(3), [&](std::int64_t begin, std::int64_t end) {
      for (auto token = begin; token < end; ++token) {
        const auto b = token / context, c = token % context;
        rotate_token(
            RotaryToken<Element>{.x = elements_of<Element>(x_bnck) + b * x_bnck.stride(0) + c * x_bnck.stride(2),
                                 .y = elements_of<Element>(y_bnck) + b * y_bnck.stride(0) + c * y_bnck.stride(2),
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
  });
  return y_bnck;
}

// The gradient of a rotation is the inverse rotation, so only the angles are kept.
Tensor rotate_pairs(const Tensor& x_bnck, const Tensor& cos_cr, const Tensor& sin_cr) {
  if (fits_cpu_kernels(x_bnck))
    return own_node(
        "rotate_pairs", {x_bnck}, [&](Tensors&) { return rotated(x_bnck, cos_cr, sin_cr, 1); },
        [=](const Backward& in) -> Tensors { return {rotated(in.dy[0], cos_cr, sin_cr, -1)}; });
  if (has_fused_rotation(x_bnck, cos_cr, sin_cr)) return fused_rotation(x_bnck, cos_cr, sin_cr);
  const auto pairs = cos_cr.size(1);
  const auto cos = cos_cr.to(x_bnck.scalar_type()), sin = sin_cr.to(x_bnck.scalar_type());
  const auto first = x_bnck.narrow(3, 0, pairs), second = x_bnck.narrow(3, pairs, pairs);
  return torch::cat(
      {first * cos - second * sin, second * cos + first * sin, x_bnck.narrow(3, 2 * pairs, x_bnck.size(3) - 2 * pairs)},
      3);
}

Tensor embed(const Tensor& table_vd, const Tensor& ids) {
  return has_fused_embedding(table_vd, ids) ? fused_embedding(table_vd, ids) : torch::embedding(table_vd, ids);
}

namespace {

constexpr std::int64_t loss_rows_at_once = 16;

LogitRows rows_from(const Tensor& logits_tv, const Tensor& targets_t, double smoothing, std::int64_t first,
                    std::int64_t end) {
  const auto width = logits_tv.size(1);
  return {.logits = logits_tv.const_data_ptr<float>() + first * width,
          .targets = targets_t.const_data_ptr<std::int64_t>() + first,
          .rows = end - first,
          .width = width,
          .smoothing = smoothing};
}

Tensors cross_entropy_backward(const Backward& in, double smoothing) {
  const auto &logits_tv = in.saved[0], &targets_t = in.saved[1], &greatest_t = in.saved[2], &log_sum_t = in.saved[3];
  const auto factor = in.dy[0].item<float>();
  const auto gradient_tv = torch::empty_like(logits_tv);
  at::parallel_for(0, logits_tv.size(0), loss_rows_at_once, [&](std::int64_t first, std::int64_t end) {
    cross_entropy_gradients(rows_from(logits_tv, targets_t, smoothing, first, end),
                            greatest_t.const_data_ptr<float>() + first, log_sum_t.const_data_ptr<float>() + first,
                            factor, gradient_tv.data_ptr<float>() + first * logits_tv.size(1));
  });
  return {gradient_tv};
}

}  // namespace

Tensor cross_entropy_sum(const Tensor& given_tv, const Tensor& given_targets_t, double smoothing) {
  if (has_fused_cross_entropy(given_tv))
    return fused_cross_entropy_sum(given_tv, given_targets_t, smoothing, ExpectedLossGradient::of(given_tv));
  if (!given_tv.is_cpu() || given_tv.scalar_type() != torch::kFloat)
    return at::cross_entropy_loss(given_tv, given_targets_t, {}, at::Reduction::Sum, /*ignore_index=*/-1, smoothing);
  const auto logits_tv = given_tv.contiguous(), targets_t = given_targets_t.contiguous();
  TORCH_CHECK(targets_t.numel() == 0 || targets_t.max().item<std::int64_t>() < logits_tv.size(1),
              "a target is not among the ", logits_tv.size(1), " logits");
  const auto forward = [&](Tensors& saved) {
    const auto rows = logits_tv.size(0);
    const auto greatest_t = torch::empty({rows}, torch::kFloat), log_sum_t = torch::empty_like(greatest_t);
    const auto loss_t = torch::empty({rows}, torch::kDouble);
    at::parallel_for(0, rows, loss_rows_at_once, [&](std::int64_t first, std::int64_t end) {
      cross_entropy_rows(rows_from(logits_tv, targets_t, smoothing, first, end), greatest_t.data_ptr<float>() + first,
                         log_sum_t.data_ptr<float>() + first, loss_t.data_ptr<double>() + first);
    });
    saved = {logits_tv, targets_t, greatest_t, log_sum_t};
    return loss_t.sum().to(torch::kFloat);
  };
  return own_node("the cross-entropy", {logits_tv}, forward,
                  [smoothing](const Backward& in) { return cross_entropy_backward(in, smoothing); });
}

}  // namespace metaformer
