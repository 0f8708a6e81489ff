#include "ops/fused_metric.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "cuda/metric_attention.h"
#include "ops/attention.h"
#include "ops/device.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

cuda::MetricElement metric_element(torch::ScalarType type) {
  if (type == torch::kBFloat16) return cuda::MetricElement::bf16;
  if (type == torch::kHalf) return cuda::MetricElement::fp16;
  const bool exact = at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
  return exact ? cuda::MetricElement::fp32 : cuda::MetricElement::tf32;
}

cuda::MetricForm form_of(const Tensor& metric) {
  if (!metric.defined()) return cuda::MetricForm::identity;
  return metric.dim() == 3 ? cuda::MetricForm::dense : cuda::MetricForm::diagonal;
}

cuda::MetricStrides strides_of(const Tensor& x_bnck) { return {x_bnck.stride(0), x_bnck.stride(1), x_bnck.stride(2)}; }

template <class T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

cuda::MetricSide side_of(const Tensor& p_bnck, const Tensor& segment_bc) {
  return {p_bnck.size(2), p_bnck.data_ptr(), strides_of(p_bnck), pointer<const std::int32_t>(segment_bc)};
}

// The gradients of the tokens of one side, queries or keys. q is undefined for the identity, or if it is not needed.
struct Gradient {
  Tensor dp, dq;
  cuda::MetricGradient pointers;

  Gradient(const Tensor& p, const Tensor& q, bool has_form) : dp(empty_by_token(p)) {
    if (has_form) dq = torch::empty(p.sizes(), p.options());
    const auto& image = q.defined() ? q : p;
    pointers = {image.data_ptr(), strides_of(image), dp.data_ptr(), strides_of(dp), pointer<void>(dq)};
  }
};

// `y_bnek`: undefined in self-attention. `keeps_q`: for backward.
Tensor fused_forward(const cuda::MetricInputs& in, const Tensor& p_bnck, const Tensor& y_bnek, const Tensor& value_bnek,
                     bool keeps_q, Tensors& saved) {
  const c10::OptionalDeviceGuard guard(p_bnck.device());
  const auto image_of = [&](const Tensor& x) { return torch::empty(x.sizes(), x.options()); };
  const bool has_form = in.form != cuda::MetricForm::identity;
  const auto t = empty_by_token(p_bnck), log2_sum = empty_per_row(p_bnck);
  const auto q = has_form && keeps_q ? image_of(p_bnck) : Tensor();
  const auto key_q = has_form && in.distance && y_bnek.defined() ? image_of(y_bnek) : Tensor();
  const auto half_bias = in.distance ? empty_per_row(y_bnek.defined() ? y_bnek : p_bnck) : Tensor();
  cuda::metric_forward({.in = in,
                        .t = t.data_ptr(),
                        .t_strides = strides_of(t),
                        .log2_sum = pointer<float>(log2_sum),
                        .q = pointer<void>(q),
                        .half_bias = pointer<float>(half_bias),
                        .key_q = pointer<void>(key_q)},
                       stream_of(p_bnck));
  saved = {p_bnck, y_bnek, t, log2_sum, q, key_q, half_bias, value_bnek};
  return t;
}

// The gradient of a metric of this form, in its type. Undefined: the identity has none.
Tensor metric_gradient(const cuda::MetricInputs& in, const Tensor& dmetric_nkk, torch::ScalarType type) {
  if (!dmetric_nkk.defined()) return {};
  const bool diagonal = in.form == cuda::MetricForm::diagonal;
  return (diagonal ? dmetric_nkk.diagonal(0, 1, 2) : dmetric_nkk).to(type);
}

// The gradients of the queries' p, of the keys if these are another tensor, of the values if given, and of the metric
// in its type. Uses forward's element type, even if the allowed precision has changed since.
Tensors fused_backward(const Backward& backward, const cuda::MetricInputs& in, torch::ScalarType metric_type) {
  const auto& saved = backward.saved;
  const auto &p = saved[0], &y = saved[1].defined() ? saved[1] : p;
  const auto &t = saved[2], &log2_sum = saved[3], &q = saved[4], &key_q = saved[5], &half_bias = saved[6];
  const c10::OptionalDeviceGuard guard(p.device());
  const auto dt = with_features_together(backward.dy[0]);
  const auto floats = p.options().dtype(torch::kFloat);
  const bool has_form = in.form != cuda::MetricForm::identity;
  const Gradient of_queries(p, q, has_form);
  std::optional<Gradient> of_keys;
  if (!in.to_themselves) of_keys.emplace(y, key_q, has_form && in.distance);
  const auto dvalue = in.values != nullptr ? empty_by_token(saved[7]) : Tensor();
  const auto delta = empty_per_row(p), dq_sum = torch::empty({cuda::metric_dq_sums(in)}, floats),
             turns = torch::empty({cuda::metric_turns(in)}, p.options().dtype(torch::kInt));
  const auto dkey = in.to_themselves || in.distance ? torch::empty(y.sizes(), floats) : Tensor();
  const auto row_sum = in.distance ? empty_per_row(p) : Tensor();
  const auto column_sum = in.distance ? empty_per_row(y) : Tensor();
  Tensor dmetric, partial;
  if (has_form) {
    dmetric = torch::zeros({in.heads, in.width, in.width}, floats);
    partial = torch::empty({cuda::metric_gradient_parts(in), in.heads, in.width, in.width}, floats);
  }
  cuda::metric_backward({.in = in,
                         .queries = of_queries.pointers,
                         .keys = of_keys ? of_keys->pointers : cuda::MetricGradient(),
                         .t = t.data_ptr(),
                         .t_strides = strides_of(t),
                         .dt = dt.data_ptr(),
                         .dt_strides = strides_of(dt),
                         .log2_sum = pointer<float>(log2_sum),
                         .half_bias = pointer<float>(half_bias),
                         .dvalues = pointer<void>(dvalue),
                         .dvalue_strides = dvalue.defined() ? strides_of(dvalue) : cuda::MetricStrides(),
                         .dmetric = pointer<float>(dmetric),
                         .dq_sum = pointer<float>(dq_sum),
                         .dkey = pointer<float>(dkey),
                         .delta = pointer<float>(delta),
                         .row_sum = pointer<float>(row_sum),
                         .column_sum = pointer<float>(column_sum),
                         .turns = pointer<unsigned>(turns),
                         .partial = pointer<float>(partial)},
                        stream_of(p));
  return {of_queries.dp, of_keys ? of_keys->dp : Tensor(), dvalue, metric_gradient(in, dmetric, metric_type)};
}

// The same by the short backward pass.
Tensors fused_short_backward(const Backward& backward, const cuda::MetricInputs& in, torch::ScalarType metric_type) {
  const auto& saved = backward.saved;
  const auto &p = saved[0], &t = saved[2], &log2_sum = saved[3];
  const c10::OptionalDeviceGuard guard(p.device());
  const auto dt = with_features_together(backward.dy[0]);
  const auto dp = empty_by_token(p), dvalue = in.values != nullptr ? empty_by_token(saved[7]) : Tensor();
  const auto parts = cuda::metric_short_parts(in);
  Tensor dmetric, partial;
  if (in.form != cuda::MetricForm::identity) {
    const auto floats = p.options().dtype(torch::kFloat);
    dmetric = torch::zeros({in.heads, in.width, in.width}, floats);
    partial = torch::empty({parts, in.heads, in.width, in.width}, floats);
  }
  cuda::metric_short_backward({.in = in,
                               .queries = {.dp = dp.data_ptr(), .dp_strides = strides_of(dp)},
                               .t = t.data_ptr(),
                               .t_strides = strides_of(t),
                               .dt = dt.data_ptr(),
                               .dt_strides = strides_of(dt),
                               .log2_sum = pointer<float>(log2_sum),
                               .dvalues = pointer<void>(dvalue),
                               .dvalue_strides = dvalue.defined() ? strides_of(dvalue) : cuda::MetricStrides(),
                               .dmetric = pointer<float>(dmetric),
                               .partial = pointer<float>(partial)},
                              parts, stream_of(p));
  return {dp, Tensor(), dvalue, metric_gradient(in, dmetric, metric_type)};
}

}  // namespace

bool fused_values_fit(torch::ScalarType type, std::int64_t width) {
  return cuda::has_kernels_for_values(metric_element(type), width);
}

std::string fused_metric_obstacle(const MetricVectors& vectors, const Tensor& metric) {
  const auto &p_bnck = vectors.p_bnck, &keys_bnek = vectors.keys_bnek;
  const auto& value_bnek = vectors.value_bnek.defined() ? vectors.value_bnek : keys_bnek;
  const auto type = p_bnck.scalar_type();
  const auto width = p_bnck.size(3);
  if (type != torch::kFloat && type != torch::kBFloat16 && type != torch::kHalf)
    return fmt::format("they compute in float32, bfloat16 and float16, not in {}", c10::toString(type));
  if (width % 8 != 0 || width > 128) return fmt::format("head width {} is not a multiple of 8 up to 128", width);
  if (vectors.value_bnek.defined() && !fused_values_fit(type, width))
    return fmt::format("head width {} is above 96 with values of their own in float32", width);
  for (const auto& other : {keys_bnek, value_bnek})
    if (other.scalar_type() != type || other.device() != p_bnck.device())
      return "queries, keys and values differ in type or device";
  if (value_bnek.sizes() != keys_bnek.sizes()) return "keys and values differ in size";
  for (const auto dim : {0, 1, 3})
    if (p_bnck.size(dim) != keys_bnek.size(dim)) return "queries and keys differ in batch, heads or width";
  if ((p_bnck.numel() == 0) != (keys_bnek.numel() == 0)) return "there are no queries, or no keys";
  if (p_bnck.stride(3) != 1 || keys_bnek.stride(3) != 1 || value_bnek.stride(3) != 1)
    return "the features of a token are not next to each other";
  if (metric.defined() && metric.device() != p_bnck.device()) return "the metric is on another device";
  return metric_kernel_obstacle(p_bnck.device());
}

std::string metric_kernel_obstacle(torch::Device device) {
  switch (cuda::metric_kernel_device()) {
    case cuda::MetricDevice::none:
      return "this executable was built without CUDA";
    case cuda::MetricDevice::cuda:
      return device.is_cuda() ? "" : "they run on CUDA devices";
    case cuda::MetricDevice::host:
      break;
  }
  return device.is_cpu() ? "" : "emulated kernels run on the CPU";
}

bool has_short_backward(const MetricVectors& vectors, bool distance) {
  const auto& p_bnck = vectors.p_bnck;
  const c10::OptionalDeviceGuard guard(p_bnck.device());
  cuda::MetricInputs in{.element = metric_element(p_bnck.scalar_type()),
                        .distance = distance,
                        .width = static_cast<int>(p_bnck.size(3)),
                        .to_themselves = vectors.keys_bnek.is_same(p_bnck)};
  in.queries.tokens = in.keys.tokens = p_bnck.size(2);
  if (vectors.value_bnek.defined()) in.values = vectors.value_bnek.data_ptr();
  return cuda::has_short_backward(in);
}

void require_finite_form(const Tensor& metric) {
  if (metric.defined() && !metric.isfinite().all().item<bool>())
    throw Error(ExitCode::diverged, "the fused kernels were given a metric that is not finite");
}

Tensor fused_metric_attention(const MetricVectors& vectors, const Tensor& metric, const FusedMetricOptions& options,
                              Pass& pass) {
  const auto& [p_bnck, keys_bnek, value_bnek] = vectors;
  if (const auto obstacle = fused_metric_obstacle(vectors, metric); !obstacle.empty())
    throw Error(ExitCode::usage, "the fused kernels cannot do this: " + obstacle);
  const auto as_int = [](const Tensor& segment_bc) {
    return segment_bc.defined() ? segment_bc.to(torch::kInt).contiguous() : segment_bc;
  };
  const auto fits = [](const Tensor& segment_bc, const Tensor& tokens_bnck) {
    return !segment_bc.defined() ||
           (segment_bc.size(0) == tokens_bnck.size(0) && segment_bc.size(1) == tokens_bnck.size(2));
  };
  // Otherwise the kernels would read beyond the end of the segments.
  TORCH_CHECK(fits(options.query_segment_bc, p_bnck) && fits(options.key_segment_be, keys_bnek),
              "the fused kernels need a segment for every query and every key");
  const auto query_segment_bc = as_int(options.query_segment_bc);
  const bool same_segments = options.key_segment_be.is_same(options.query_segment_bc);
  const auto key_segment_be = same_segments ? query_segment_bc : as_int(options.key_segment_be);
  const bool to_themselves = keys_bnek.is_same(p_bnck);
  cuda::MetricInputs in{.element = metric_element(p_bnck.scalar_type()),
                        .form = form_of(metric),
                        .distance = options.distance,
                        .causal = options.causal,
                        .batch = p_bnck.size(0),
                        .heads = p_bnck.size(1),
                        .width = static_cast<int>(p_bnck.size(3)),
                        .scale = static_cast<float>(options.scale),
                        .queries = side_of(p_bnck, query_segment_bc),
                        .keys = side_of(keys_bnek, key_segment_be),
                        .to_themselves = to_themselves};
  if (value_bnek.defined()) {
    in.values = value_bnek.data_ptr();
    in.value_strides = strides_of(value_bnek);
  }
  // Tensors that `in` points to besides p and the keys.
  Tensors pointed_to = {query_segment_bc, key_segment_be};
  if (pass.training && options.dropout > 0) {
    const auto draw = pass.random.next();
    in.dropout = {options.dropout, draw.key.const_data_ptr<std::int64_t>(), draw.number, draw.first_row};
    pointed_to.push_back(draw.key);  // the tensor: recorded work may be replayed with another key
  }
  auto metric_type = torch::kFloat;
  if (metric.defined()) {
    metric_type = metric.scalar_type();
    pointed_to.push_back(metric.detach().to(p_bnck.scalar_type()).contiguous());
    in.metric = pointed_to.back().data_ptr();
  }
  const auto others_bnek = to_themselves ? Tensor() : keys_bnek;
  const bool is_short = options.short_backward && has_short_backward(vectors, options.distance);
  const auto forward = [&](Tensors& saved) {
    auto t = fused_forward(in, vectors.p_bnck, others_bnek, vectors.value_bnek, /*keeps_q=*/!is_short, saved);
    saved.insert(saved.end(), pointed_to.begin(), pointed_to.end());
    return t;
  };
  // The metric is an input in its own type, so that its gradient is not rounded to p's type.
  return own_node("fused metric attention", {p_bnck, others_bnek, value_bnek, metric}, forward,
                  [in, metric_type, is_short](const Backward& backward) {
                    return is_short ? fused_short_backward(backward, in, metric_type)
                                    : fused_backward(backward, in, metric_type);
                  });
}

}  // namespace metaformer
