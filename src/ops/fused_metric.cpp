#include "ops/fused_metric.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "cuda/metric_attention.h"
#include "ops/device_stream.h"
#include "ops/first_order.h"
#include "ops/heads.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

cuda::MetricElement element_of(torch::ScalarType type) {
  switch (type) {
    case torch::kBFloat16:
      return cuda::MetricElement::bf16;
    case torch::kHalf:
      return cuda::MetricElement::fp16;
    default:
      return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST
                 ? cuda::MetricElement::fp32
                 : cuda::MetricElement::tf32;
  }
}

cuda::MetricForm form_of(const Tensor& metric) {
  if (!metric.defined()) return cuda::MetricForm::identity;
  return metric.dim() == 3 ? cuda::MetricForm::dense : cuda::MetricForm::diagonal;
}

cuda::MetricStrides strides_of(const Tensor& x_bnck) { return {x_bnck.stride(0), x_bnck.stride(1), x_bnck.stride(2)}; }

Tensor empty_per_row(const Tensor& like_bnck) {
  return torch::empty({like_bnck.size(0), like_bnck.size(1), like_bnck.size(2)},
                      like_bnck.options().dtype(torch::kFloat));
}

template <class T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

// What forward and backward must agree on.
struct Setting {
  bool distance = false, causal = false;
  double scale = 1;
  cuda::MetricElement element = cuda::MetricElement::fp32;  // backward uses forward's, whatever is allowed by then
  double dropout = 0;
  std::uint64_t draw = 0;  // the number of the draw
};

// `key`: of the draw; undefined: nothing is dropped.
cuda::MetricInputs inputs_of(const Tensor& p_bnck, const Tensor& metric, const Tensor& segment_bc, const Tensor& key,
                             const Setting& setting) {
  return {.element = setting.element,
          .form = form_of(metric),
          .distance = setting.distance,
          .causal = setting.causal,
          .batch = p_bnck.size(0),
          .heads = p_bnck.size(1),
          .tokens = p_bnck.size(2),
          .width = static_cast<int>(p_bnck.size(3)),
          .scale = static_cast<float>(setting.scale),
          .p = p_bnck.data_ptr(),
          .p_strides = strides_of(p_bnck),
          .metric = pointer<const void>(metric),
          .segments = pointer<const std::int32_t>(segment_bc),
          .dropout = {setting.dropout, pointer<const std::int64_t>(key), setting.draw}};
}

class FusedMetric : public torch::autograd::Function<FusedMetric> {
 public:
  // `metric` in its own type: its gradient must not be rounded to p's.
  static Tensor forward(AutogradContext* context, const Tensor& p_bnck, const std::optional<Tensor>& metric_if_any,
                        const std::optional<Tensor>& segments_if_any, const std::optional<Tensor>& key_if_any,
                        Setting setting) {
    const auto metric = metric_if_any.value_or(Tensor()), segment_bc = segments_if_any.value_or(Tensor()),
               key = key_if_any.value_or(Tensor());
    const c10::OptionalDeviceGuard guard(p_bnck.device());
    setting.element = element_of(p_bnck.scalar_type());
    const bool distance = setting.distance;
    const auto form = metric.defined() ? metric.to(p_bnck.scalar_type()).contiguous() : metric;
    const auto t = empty_by_token(p_bnck), log2_sum = empty_per_row(p_bnck);
    const auto q = form.defined() ? torch::empty(p_bnck.sizes(), p_bnck.options()) : Tensor();
    const auto half_bias = distance ? empty_per_row(p_bnck) : Tensor();
    cuda::metric_forward({.in = inputs_of(p_bnck, form, segment_bc, key, setting),
                          .t = t.data_ptr(),
                          .t_strides = strides_of(t),
                          .log2_sum = pointer<float>(log2_sum),
                          .q = pointer<void>(q),
                          .half_bias = pointer<float>(half_bias)},
                         stream_of(p_bnck));
    context->save_for_backward({p_bnck, form, segment_bc, t, log2_sum, q, half_bias, key});
    auto& data = context->saved_data;
    data["distance"] = distance;
    data["causal"] = setting.causal;
    data["scale"] = setting.scale;
    data["element"] = static_cast<std::int64_t>(setting.element);
    data["dropout"] = setting.dropout;
    data["draw"] = static_cast<std::int64_t>(setting.draw);
    if (metric.defined()) data["metric_type"] = static_cast<std::int64_t>(metric.scalar_type());
    return t;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("fused metric attention");
    const auto saved = context->get_saved_variables();
    const auto &p = saved[0], &form = saved[1], &segments = saved[2], &t = saved[3], &log2_sum = saved[4],
               &q = saved[5], &half_bias = saved[6], &key = saved[7];
    auto& data = context->saved_data;
    const Setting setting{.distance = data["distance"].toBool(),
                          .causal = data["causal"].toBool(),
                          .scale = data["scale"].toDouble(),
                          .element = static_cast<cuda::MetricElement>(data["element"].toInt()),
                          .dropout = data["dropout"].toDouble(),
                          .draw = static_cast<std::uint64_t>(data["draw"].toInt())};
    const c10::OptionalDeviceGuard guard(p.device());
    const auto dt = gradients[0].stride(3) == 1 ? gradients[0] : gradients[0].contiguous();
    const auto in = inputs_of(p, form, segments, key, setting);
    const auto floats = p.options().dtype(torch::kFloat);
    const auto dp = empty_by_token(p), dq = torch::empty(p.sizes(), p.options()), delta = empty_per_row(p),
               dq_sum = torch::empty(p.sizes(), floats), dkey = torch::empty(p.sizes(), floats),
               turns = torch::empty({cuda::metric_turns(in)}, p.options().dtype(torch::kInt));
    const auto row_sum = setting.distance ? empty_per_row(p) : Tensor();
    const auto column_sum = setting.distance ? empty_per_row(p) : Tensor();
    const auto& key_side = q.defined() ? q : p;
    Tensor dmetric, partial;
    if (form.defined()) {
      dmetric = torch::zeros({in.heads, in.width, in.width}, floats);
      partial = torch::empty({cuda::metric_gradient_parts(in), in.heads, in.width, in.width}, floats);
    }
    cuda::metric_backward({.in = in,
                           .q = key_side.data_ptr(),
                           .q_strides = strides_of(key_side),
                           .t = t.data_ptr(),
                           .t_strides = strides_of(t),
                           .dt = dt.data_ptr(),
                           .dt_strides = strides_of(dt),
                           .log2_sum = pointer<float>(log2_sum),
                           .half_bias = pointer<float>(half_bias),
                           .dp = dp.data_ptr(),
                           .dp_strides = strides_of(dp),
                           .dmetric = pointer<float>(dmetric),
                           .dq_sum = pointer<float>(dq_sum),
                           .dkey = pointer<float>(dkey),
                           .dq = dq.data_ptr(),
                           .delta = pointer<float>(delta),
                           .row_sum = pointer<float>(row_sum),
                           .column_sum = pointer<float>(column_sum),
                           .turns = pointer<unsigned>(turns),
                           .partial = pointer<float>(partial)},
                          stream_of(p));
    if (in.form == cuda::MetricForm::diagonal) dmetric = dmetric.diagonal(0, 1, 2);
    if (dmetric.defined()) dmetric = dmetric.to(static_cast<torch::ScalarType>(data["metric_type"].toInt()));
    return {dp, dmetric, {}, {}, {}};
  }
};

}  // namespace

std::string fused_metric_obstacle(const Tensor& p_bnck, const Tensor& metric) {
  const auto type = p_bnck.scalar_type();
  const auto width = p_bnck.size(3);
  if (type != torch::kFloat && type != torch::kBFloat16 && type != torch::kHalf)
    return fmt::format("they compute in float32, bfloat16 and float16, not in {}", c10::toString(type));
  if (width % 8 != 0 || width > 128) return fmt::format("head width {} is not a multiple of 8 up to 128", width);
  if (p_bnck.stride(3) != 1) return "the features of a token are not next to each other";
  if (metric.defined() && metric.device() != p_bnck.device()) return "the metric is on another device";
  switch (cuda::metric_kernel_device()) {
    case cuda::MetricDevice::none:
      return "this executable was built without CUDA";
    case cuda::MetricDevice::cuda:
      return p_bnck.is_cuda() ? "" : "they run on CUDA devices";
    case cuda::MetricDevice::host:
      break;
  }
  return p_bnck.is_cpu() ? "" : "emulated kernels run on the CPU";
}

void require_finite_form(const Tensor& metric) {
  if (metric.defined() && !metric.isfinite().all().item<bool>())
    throw Error(ExitCode::diverged, "the fused kernels were given a metric that is not finite");
}

Tensor fused_metric_attention(const Tensor& p_bnck, const Tensor& metric, const FusedMetricOptions& options,
                              Pass& pass) {
  if (const auto obstacle = fused_metric_obstacle(p_bnck, metric); !obstacle.empty())
    throw Error(ExitCode::usage, "the fused kernels cannot do this: " + obstacle);
  const auto segment_bc =
      options.segment_bc.defined() ? options.segment_bc.to(torch::kInt).contiguous() : options.segment_bc;
  // Absent inputs are nothing to LibTorch's functions only as optionals.
  const auto if_any = [](const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  Setting setting{.distance = options.distance, .causal = options.causal, .scale = options.scale};
  Tensor key;  // where it lies: work that was recorded may be replayed with another
  if (pass.training && options.dropout > 0) {
    const auto draw = pass.random.next();
    key = draw.key;
    setting.dropout = options.dropout;
    setting.draw = draw.number;
  }
  return FusedMetric::apply(p_bnck, if_any(metric), if_any(segment_bc), if_any(key), setting);
}

}  // namespace metaformer
