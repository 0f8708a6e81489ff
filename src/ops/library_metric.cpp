#include "ops/library_metric.h"

#include <ATen/SDPBackend.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include "base/error.h"
#include "cuda/metric_projection.h"
#include "ops/attention.h"
#include "ops/device.h"
#include "ops/fused_metric.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

// The parts of a projection as heads, in views that autograd does not record. value_bnck is undefined if values are p.
struct ProjectionParts {
  Tensor x_bnck, value_bnck;

  ProjectionParts(const Tensor& projected_bcd, const LibraryMetricOptions& options) {
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const auto width = projected_bcd.size(2) / (options.own_values ? 2 : 1);
    x_bnck = split_heads(projected_bcd.narrow(2, 0, width), options.heads);
    if (options.own_values) value_bnck = split_heads(projected_bcd.narrow(2, width, width), options.heads);
  }
};

// Whether the kernels can read the rows of x, 8 elements at a time.
bool has_aligned_rows(const Tensor& x) {
  const auto strides = x.strides().slice(0, static_cast<std::size_t>(x.dim() - 1));
  return x.stride(-1) == 1 && reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 16 == 0 &&
         std::all_of(strides.begin(), strides.end(), [](auto stride) { return stride % 8 == 0; });
}
Tensor with_aligned_rows(const Tensor& x) { return has_aligned_rows(x) ? x : x.clone(at::MemoryFormat::Contiguous); }

cuda::MetricRows rows_at(const Tensor& x_bnck) {
  if (!x_bnck.defined()) return {};
  return {x_bnck.data_ptr(), {x_bnck.stride(0), x_bnck.stride(1), x_bnck.stride(2)}};
}

// The kernel arguments that both passes share, without results.
cuda::MetricProjection projection_kernel(const Tensor& x_bnck, const Tensor& gain_k, const Tensor& metric,
                                         const LibraryMetricOptions& options) {
  const auto x = rows_at(x_bnck);
  return {
      .in = {.element = x_bnck.scalar_type() == torch::kHalf ? cuda::MetricElement::fp16 : cuda::MetricElement::bf16,
             .form = !metric.defined()   ? cuda::MetricForm::identity
                     : metric.dim() == 3 ? cuda::MetricForm::dense
                                         : cuda::MetricForm::diagonal,
             .batch = x_bnck.size(0),
             .heads = x_bnck.size(1),
             .width = static_cast<int>(x_bnck.size(3)),
             .metric = metric.defined() ? metric.data_ptr() : nullptr,
             .queries = {x_bnck.size(2), x.data, x.strides}},
      .normalised = options.norm_epsilon.has_value(),
      .epsilon = static_cast<float>(options.norm_epsilon.value_or(0)),
      .gain = floats_of(gain_k)};
}

// LibTorch's attention, whose backward pass needs the results of its forward pass besides t.
enum class LibraryCore { flash_of_cpu, flash, cudnn };

LibraryCore choose_core(const ProjectionParts& parts, const LibraryMetricOptions& options) {
  const auto& x = parts.x_bnck;
  if (x.is_cpu()) return LibraryCore::flash_of_cpu;
  const auto& v = options.own_values ? parts.value_bnck : x;
  const auto chosen = at::_fused_sdp_choice(x, x, v, {}, /*dropout_p=*/0, options.causal, options.scale);
  return chosen == static_cast<std::int64_t>(at::SDPBackend::cudnn_attention) ? LibraryCore::cudnn : LibraryCore::flash;
}

// Returns t, the logarithms of the softmax's sums, two tensors of lengths and two of random states; the last four may
// be undefined.
Tensors attend_forward(LibraryCore core, const Tensor& q, const Tensor& p, const Tensor& v,
                       const LibraryMetricOptions& options) {
  if (core == LibraryCore::flash_of_cpu) {
    auto [t, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(q, p, v, /*dropout_p=*/0, options.causal,
                                                                        /*attn_mask=*/{}, options.scale);
    return {t, log_sum, {}, {}, {}, {}};
  }
  auto [t, log_sum, lengths_q, lengths_k, most_q, most_k, seed, offset, mask] =
      core == LibraryCore::cudnn ? at::_scaled_dot_product_cudnn_attention(
                                       q, p, v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true,
                                       /*dropout_p=*/0, options.causal, /*return_debug_mask=*/false, options.scale)
                                 : at::_scaled_dot_product_flash_attention(q, p, v, /*dropout_p=*/0, options.causal,
                                                                           /*return_debug_mask=*/false, options.scale);
  return {t, log_sum, lengths_q, lengths_k, seed, offset};
}

// Returns dq, dk, dv. `attended`: the result of attend_forward.
std::tuple<Tensor, Tensor, Tensor> attend_backward(LibraryCore core, const Tensor& dt, const Tensor& q, const Tensor& p,
                                                   const Tensor& v, at::ArrayRef<Tensor> attended,
                                                   const LibraryMetricOptions& options) {
  const auto &t = attended[0], &log_sum = attended[1];
  const auto tokens = q.size(2);
  switch (core) {
    case LibraryCore::flash_of_cpu:
      return at::_scaled_dot_product_flash_attention_for_cpu_backward(dt, q, p, v, t, log_sum, /*dropout_p=*/0,
                                                                      options.causal, /*attn_mask=*/{}, options.scale);
    case LibraryCore::flash:
      return at::_scaled_dot_product_flash_attention_backward(dt, q, p, v, t, log_sum, attended[2], attended[3], tokens,
                                                              tokens, /*dropout_p=*/0, options.causal, attended[4],
                                                              attended[5], options.scale);
    case LibraryCore::cudnn:
      break;
  }
  return at::_scaled_dot_product_cudnn_attention_backward(dt, q, p, v, t, log_sum, attended[4], attended[5],
                                                          /*attn_bias=*/{}, attended[2], attended[3], tokens, tokens,
                                                          /*dropout_p=*/0, options.causal, options.scale);
}

constexpr std::size_t first_attended = 5;  // index among the tensors that forward saves

Tensor library_forward(const Tensor& projected_bcd, const Tensor& gain_k, const Tensor& metric,
                       const LibraryMetricOptions& options, LibraryCore core, Tensors& saved) {
  const c10::OptionalDeviceGuard guard(projected_bcd.device());
  const ProjectionParts parts(projected_bcd, options);
  const auto& x = parts.x_bnck;
  const auto p = options.norm_epsilon ? empty_by_token(x) : x, q = metric.defined() ? empty_by_token(x) : p;
  auto projection = projection_kernel(x, gain_k, metric, options);
  if (options.norm_epsilon) projection.p = rows_at(p);
  if (metric.defined()) projection.q = rows_at(q);
  if (options.norm_epsilon || metric.defined()) cuda::metric_project(projection, stream_of(x));
  const auto& v = options.own_values ? parts.value_bnck : p;
  const auto attended = attend_forward(core, q, p, v, options);
  saved = {projected_bcd, gain_k, metric, options.norm_epsilon ? p : Tensor(), metric.defined() ? q : Tensor()};
  saved.insert(saved.end(), attended.begin(), attended.end());
  return attended[0];
}

// The gradients of the projection, of the gain in float32, and of the metric, [n, k, k], in float32.
Tensors library_backward(const Backward& in, const LibraryMetricOptions& options, LibraryCore core) {
  const auto &projected_bcd = in.saved[0], &gain_k = in.saved[1], &metric = in.saved[2];
  const c10::OptionalDeviceGuard guard(projected_bcd.device());
  const ProjectionParts parts(projected_bcd, options);
  const auto& x = parts.x_bnck;
  const auto &p = in.saved[3].defined() ? in.saved[3] : x, &q = in.saved[4].defined() ? in.saved[4] : p;
  const auto [dq_given, dk_given, dv_given] =
      attend_backward(core, with_features_together(in.dy[0]), q, p, options.own_values ? parts.value_bnck : p,
                      at::ArrayRef<Tensor>(in.saved).slice(first_attended), options);
  const auto dq = with_aligned_rows(dq_given), dk = with_aligned_rows(dk_given), dv = with_aligned_rows(dv_given);

  const auto dprojected_bcd = torch::empty_like(projected_bcd);
  const ProjectionParts gradients(dprojected_bcd, options);
  const auto n = x.size(1), k = x.size(3);
  const auto floats = projected_bcd.options().dtype(torch::kFloat);
  const auto dmetric_nkk = metric.defined() ? torch::empty({n, k, k}, floats) : Tensor();
  const auto dgain_nk = gain_k.defined() ? torch::empty({n, k}, floats) : Tensor();
  const auto projection = projection_kernel(x, gain_k, metric, options);
  const auto parts_of_sums = cuda::metric_projection_parts(projection.in);
  const auto partial =
      torch::empty({parts_of_sums, n, (metric.defined() ? k : 0) + (gain_k.defined() ? 1 : 0), k}, floats);
  cuda::metric_project_backward({.forward = projection,
                                 .dq = rows_at(dq),
                                 .dk = rows_at(dk),
                                 .dv = rows_at(dv),
                                 .dx = rows_at(gradients.x_bnck),
                                 .dvalue = rows_at(gradients.value_bnck),
                                 .dmetric = floats_of(dmetric_nkk),
                                 .dgain = floats_of(dgain_nk),
                                 .parts = parts_of_sums,
                                 .partial = floats_of(partial)},
                                stream_of(x));
  return {dprojected_bcd, dgain_nk.defined() ? dgain_nk.sum(0) : Tensor(), dmetric_nkk};
}

void require_possible(const Tensor& projected_bcd, const Tensor& gain_k, const Tensor& metric,
                      const LibraryMetricOptions& options) {
  auto obstacle = library_metric_obstacle(projected_bcd.scalar_type(), projected_bcd.device());
  const auto features = options.heads * (options.own_values ? 2 : 1), k = projected_bcd.size(2) / features;
  if (obstacle.empty() && (projected_bcd.size(2) % features != 0 || k % 8 != 0 || k == 0 || k > 128))
    obstacle = fmt::format("{} features are not {} heads whose width is a multiple of 8 up to 128",
                           projected_bcd.size(2), features);
  if (obstacle.empty() && projected_bcd.numel() == 0) obstacle = "there are no tokens";
  if (!obstacle.empty()) throw Error(ExitCode::usage, "the library's attention cannot do this: " + obstacle);
  // Otherwise the kernels would read beyond the end of these tensors.
  TORCH_CHECK(!gain_k.defined() || (options.norm_epsilon && gain_k.sizes() == at::IntArrayRef{k}), "a gain of ", k,
              " features goes with a norm");
  TORCH_CHECK(!metric.defined() || (metric.size(0) == options.heads && metric.size(1) == k && metric.size(-1) == k),
              "the metric is not of ", options.heads, " heads of ", k, " features");
}

}  // namespace

std::string library_metric_obstacle(torch::ScalarType type, torch::Device device) {
  if (type != torch::kBFloat16 && type != torch::kHalf)
    return fmt::format("it computes in bfloat16 and float16, not in {}", c10::toString(type));
  return metric_kernel_obstacle(device);
}

Tensor library_metric_attention(const Tensor& given_bcd, const Tensor& gain_k, const Tensor& metric,
                                const LibraryMetricOptions& options) {
  require_possible(given_bcd, gain_k, metric, options);
  const auto projected_bcd = given_bcd.is_contiguous() && has_aligned_rows(given_bcd)
                                 ? given_bcd
                                 : given_bcd.clone(at::MemoryFormat::Contiguous);
  const auto as = [&](const Tensor& x, torch::ScalarType type) {
    return x.defined() ? x.detach().to(type).contiguous() : x;
  };
  const auto used_gain_k = as(gain_k, torch::kFloat), used_metric = as(metric, projected_bcd.scalar_type());
  const auto core = choose_core(ProjectionParts(projected_bcd, options), options);
  const auto forward = [&](Tensors& saved) {
    return library_forward(projected_bcd, used_gain_k, used_metric, options, core, saved);
  };
  // The gain and the metric are inputs in their own types, so that their gradients are not rounded to the projection's
  // type.
  const auto type_of = [](const Tensor& x) { return x.defined() ? x.scalar_type() : torch::kFloat; };
  const auto backward = [options, core, gain_type = type_of(gain_k), metric_type = type_of(metric),
                         is_diagonal = metric.defined() && metric.dim() == 2](const Backward& in) {
    auto gradients = library_backward(in, options, core);
    auto &dgain = gradients[1], &dmetric = gradients[2];
    if (dgain.defined()) dgain = dgain.to(gain_type);
    if (is_diagonal) dmetric = dmetric.diagonal(0, 1, 2);
    if (dmetric.defined()) dmetric = dmetric.to(metric_type);
    return gradients;
  };
  return own_node("metric attention by the library", {projected_bcd, gain_k, metric}, forward, backward);
}

}  // namespace metaformer
