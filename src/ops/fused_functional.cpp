#include "ops/fused_functional.h"

#include <c10/core/DeviceGuard.h>

#include <limits>

#include "cuda/activation.h"
#include "cuda/embedding.h"
#include "cuda/rotary.h"
#include "ops/attention.h"
#include "ops/device.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

// The gradients of x and the bias.
Tensors fused_activation_backward(const Backward& in, cuda::Activation arguments) {
  const auto &x = in.saved[0], &bias = in.saved[1];
  const c10::OptionalDeviceGuard guard(x.device());
  const auto dy = in.dy[0].contiguous();
  arguments.x = x.const_data_ptr();
  arguments.bias = floats_of(bias);
  Tensor dx, dbias, partial;
  if (in.needs(0)) dx = torch::empty(x.sizes(), x.options());
  if (in.needs(1)) {
    dbias = torch::empty_like(bias);
    partial = torch::empty({cuda::activation_partial_sums(arguments.rows, bias.numel())}, bias.options());
  }
  cuda::activation_backward({.forward = arguments,
                             .dy = dy.const_data_ptr(),
                             .dx = dx.defined() ? dx.data_ptr() : nullptr,
                             .dbias = floats_of(dbias),
                             .partial = floats_of(partial)},
                            stream_of(x));
  return {dx, dbias};
}

}  // namespace

bool has_fused_activation(const Tensor& x, const Tensor& bias) {
  if (!x.is_cuda() || !is_row_type(x.scalar_type()) || x.dim() == 0 || x.numel() == 0) return false;
  if (x.size(-1) > cuda::most_activation_width) return false;
  return !bias.defined() || (bias.scalar_type() == torch::kFloat && bias.device() == x.device() &&
                             bias.is_contiguous() && bias.numel() == x.size(-1));
}

Tensor fused_activation(ActivationFunction f, const Tensor& given, const Tensor& bias, bool gated) {
  const auto x = given.contiguous();
  auto sizes = x.sizes().vec();
  sizes.back() /= gated ? 2 : 1;
  const cuda::Activation arguments{.function = f,
                                   .gated = gated,
                                   .element = row_element(x.scalar_type()),
                                   .rows = x.numel() / x.size(-1),
                                   .width = static_cast<int>(sizes.back())};
  const auto forward = [&](Tensors& saved) {
    const c10::OptionalDeviceGuard guard(x.device());
    const auto y = torch::empty(sizes, x.options());
    auto with_pointers = arguments;
    with_pointers.x = x.const_data_ptr();
    with_pointers.bias = floats_of(bias);
    with_pointers.y = y.data_ptr();
    cuda::activation(with_pointers, stream_of(x));
    saved = {x, bias};
    return y;
  };
  return own_node("an activation", {x, bias}, forward,
                  [arguments](const Backward& in) { return fused_activation_backward(in, arguments); });
}

bool has_fused_rotation(const Tensor& x_bnck, const Tensor& cos_cr, const Tensor& sin_cr) {
  if (!x_bnck.is_cuda() || !is_row_type(x_bnck.scalar_type()) || x_bnck.numel() == 0) return false;
  for (const auto& angles : {cos_cr, sin_cr})
    if (angles.scalar_type() != torch::kFloat || !angles.is_contiguous() || angles.device() != x_bnck.device())
      return false;
  return x_bnck.numel() / x_bnck.size(1) <= std::numeric_limits<int>::max();
}

// direction: -1 rotates back.
static Tensor fused_rotated(const Tensor& given_bnck, const Tensor& cos_cr, const Tensor& sin_cr, float direction) {
  const c10::OptionalDeviceGuard guard(given_bnck.device());
  const auto x_bnck = with_features_together(given_bnck), y_bnck = empty_by_token(x_bnck);
  const auto strides_of = [](const Tensor& x) {
    return cuda::HeadStrides{.text = x.stride(0), .head = x.stride(1), .token = x.stride(2)};
  };
  cuda::rotary({.element = row_element(x_bnck.scalar_type()),
                .texts = x_bnck.size(0),
                .heads = x_bnck.size(1),
                .tokens = x_bnck.size(2),
                .width = static_cast<int>(x_bnck.size(3)),
                .pairs = static_cast<int>(cos_cr.size(1)),
                .x = x_bnck.const_data_ptr(),
                .y = y_bnck.data_ptr(),
                .x_strides = strides_of(x_bnck),
                .y_strides = strides_of(y_bnck),
                .cosines = cos_cr.const_data_ptr<float>(),
                .sines = sin_cr.const_data_ptr<float>(),
                .direction = direction},
               stream_of(x_bnck));
  return y_bnck;
}

Tensor fused_rotation(const Tensor& x_bnck, const Tensor& cos_cr, const Tensor& sin_cr) {
  return own_node(
      "rotate_pairs", {x_bnck}, [&](Tensors&) { return fused_rotated(x_bnck, cos_cr, sin_cr, 1); },
      [=](const Backward& in) -> Tensors { return {fused_rotated(in.dy[0], cos_cr, sin_cr, -1)}; });
}

bool has_fused_embedding(const Tensor& table_vd, const Tensor& ids) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  return table_vd.is_cuda() && table_vd.scalar_type() == torch::kFloat && ids.scalar_type() == torch::kLong &&
         ids.device() == table_vd.device() && ids.numel() > 0 && ids.numel() <= most && table_vd.size(0) <= most;
}

static Tensors fused_embedding_backward(const Backward& in, std::int64_t vocabulary) {
  const auto &ids = in.saved[0], dy = in.dy[0].contiguous();
  const c10::OptionalDeviceGuard guard(dy.device());
  const auto width = dy.size(-1), tokens = ids.numel();
  const auto dtable_vd = torch::zeros({vocabulary, width}, dy.options());
  const auto numbers = torch::empty({cuda::embedding_gradient_numbers(tokens)}, dy.options().dtype(torch::kInt)),
             sums = torch::empty({cuda::embedding_gradient_sums(tokens, static_cast<int>(width))}, dy.options());
  cuda::embedding_gradient({.ids = ids.const_data_ptr<std::int64_t>(),
                            .tokens = tokens,
                            .vocabulary = vocabulary,
                            .width = static_cast<int>(width),
                            .dy = dy.const_data_ptr<float>(),
                            .dtable = dtable_vd.data_ptr<float>(),
                            .numbers = static_cast<std::uint32_t*>(numbers.data_ptr()),
                            .sums = sums.data_ptr<float>()},
                           stream_of(dy));
  return {dtable_vd};
}

Tensor fused_embedding(const Tensor& table_vd, const Tensor& given_ids) {
  const auto ids = given_ids.contiguous();
  const auto forward = [&](Tensors& saved) {
    saved = {ids};
    return torch::embedding(table_vd, ids);
  };
  return own_node("an embedding", {table_vd}, forward, [vocabulary = table_vd.size(0)](const Backward& in) {
    return fused_embedding_backward(in, vocabulary);
  });
}

}  // namespace metaformer
