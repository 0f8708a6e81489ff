#include "ops/fused_cross_entropy.h"

#include <c10/core/DeviceGuard.h>

#include <limits>
#include <utility>

#include "cuda/cross_entropy.h"
#include "ops/device.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

thread_local const ExpectedLossGradient* expected_gradient = nullptr;

cuda::CrossEntropy arguments_of(const Tensor& logits_tv, const Tensor& targets_t, double smoothing) {
  return {.element = row_element(logits_tv.scalar_type()),
          .logits = logits_tv.const_data_ptr(),
          .rows = logits_tv.size(0),
          .width = logits_tv.size(1),
          .stride = logits_tv.stride(0),
          .targets = targets_t.const_data_ptr<std::int64_t>(),
          .smoothing = smoothing};
}

// Backward of the saved logits, targets, expected scalar and gradient. `is_first`: the gradient has not been given
// away.
Tensors fused_cross_entropy_backward(const Backward& in, double smoothing, bool is_first) {
  const auto &logits_tv = in.saved[0], &targets_t = in.saved[1], &expected = in.saved[2], &computed_tv = in.saved[3];
  const c10::OptionalDeviceGuard guard(logits_tv.device());
  const auto factor = in.dy[0].contiguous();
  const bool may_be_computed = computed_tv.defined() && is_first;
  const auto gradient_tv = may_be_computed ? computed_tv : torch::empty(logits_tv.sizes(), logits_tv.options());
  auto arguments = arguments_of(logits_tv, targets_t, smoothing);
  arguments.gradient = gradient_tv.data_ptr();
  arguments.factor = factor.const_data_ptr<float>();
  if (may_be_computed) arguments.computed = expected.const_data_ptr<float>();
  cuda::cross_entropy(arguments, stream_of(logits_tv));
  return {gradient_tv};
}

}  // namespace

bool has_fused_cross_entropy(const Tensor& logits) {
  return logits.is_cuda() && is_row_type(logits.scalar_type()) && logits.size(-1) > 0 &&
         logits.size(-1) <= std::numeric_limits<int>::max();
}

Tensor fused_cross_entropy_sum(const Tensor& given_tv, const Tensor& given_targets_t, double smoothing,
                               const Tensor& expected) {
  const auto logits_tv = given_tv.stride(1) == 1 ? given_tv : given_tv.contiguous(),
             targets_t = given_targets_t.contiguous();
  const auto forward = [&](Tensors& saved) {
    const c10::OptionalDeviceGuard guard(logits_tv.device());
    const auto floats = logits_tv.options().dtype(torch::kFloat);
    const auto loss = torch::empty({}, floats),
               partial = torch::empty({cuda::cross_entropy_parts(logits_tv.size(0), logits_tv.size(1))}, floats);
    const auto gradient_tv = expected.defined() ? torch::empty(logits_tv.sizes(), logits_tv.options()) : Tensor();
    auto arguments = arguments_of(logits_tv, targets_t, smoothing);
    arguments.loss = loss.data_ptr<float>();
    arguments.partial = partial.data_ptr<float>();
    if (expected.defined()) {
      arguments.gradient = gradient_tv.data_ptr();
      arguments.factor = expected.const_data_ptr<float>();
    }
    cuda::cross_entropy(arguments, stream_of(logits_tv));
    saved = {logits_tv, targets_t, expected, gradient_tv};
    return loss;
  };
  // A graph that is kept may run backward again, after the gradient of the first time has been given away.
  const auto is_used = std::make_shared<bool>(false);
  return own_node("the cross-entropy", {logits_tv}, forward, [smoothing, is_used](const Backward& in) {
    return fused_cross_entropy_backward(in, smoothing, !std::exchange(*is_used, true));
  });
}

ExpectedLossGradient::ExpectedLossGradient(std::function<Tensor()> gradient)
    : gradient_(std::move(gradient)), outer_(std::exchange(expected_gradient, this)) {}

ExpectedLossGradient::~ExpectedLossGradient() { expected_gradient = outer_; }

Tensor ExpectedLossGradient::of(const Tensor& logits_tv) {
  constexpr std::int64_t of_caches = 1 << 23;  // elements: 16 MB in 16 bits
  const bool needs_gradient = torch::GradMode::is_enabled() && logits_tv.requires_grad();
  if (expected_gradient == nullptr || !needs_gradient || logits_tv.numel() < of_caches) return {};
  const torch::NoGradGuard no_grad;
  return expected_gradient->gradient_();
}

}  // namespace metaformer
