#include "ops/recompute.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

namespace metaformer {

OperatorSettings::OperatorSettings(torch::Device of_device)
    : device(of_device.type()),
      casts(at::autocast::is_autocast_enabled(device)),
      type(at::autocast::get_autocast_dtype(device)) {}

static void apply(const OperatorSettings& settings) {
  at::autocast::set_autocast_enabled(settings.device, settings.casts);
  at::autocast::set_autocast_dtype(settings.device, settings.type);
}

RepeatScope::RepeatScope(const OperatorSettings& settings, Gradients gradients)
    : gradients_(gradients == Gradients::recorded),
      before_(torch::Device(settings.device)),
      cached_before_(at::autocast::is_autocast_cache_enabled()) {
  apply(settings);
  at::autocast::set_autocast_cache_enabled(false);
}

RepeatScope::~RepeatScope() {
  at::autocast::set_autocast_cache_enabled(cached_before_);
  apply(before_);
}

Tensors gradients_of(const torch::Tensor& y, const Tensors& inputs, const torch::Tensor& dy) {
  Tensors wanted, found(inputs.size());
  for (const auto& input : inputs)
    if (input.requires_grad()) wanted.push_back(input);
  if (wanted.empty() || !y.requires_grad()) return found;
  const auto gradients = torch::autograd::grad({y}, wanted, {dy}, /*retain_graph=*/false, /*create_graph=*/false,
                                               /*allow_unused=*/true);
  for (std::size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad()) found[i] = gradients[next++];
  return found;
}

Repeated repeat(const OperatorSettings& settings, const Tensors& inputs, const torch::Tensor& dy,
                c10::function_ref<torch::Tensor(const torch::Tensor& x)> f) {
  const auto y = [&] {
    const RepeatScope scope(settings, RepeatScope::Gradients::recorded);
    return f(inputs[0]);
  }();
  return {y.detach(), gradients_of(y, inputs, dy)};
}

torch::Tensor recomputed(const Recomputed& f, const torch::Tensor& x, const Tensors& weights) {
  if (!torch::GradMode::is_enabled()) return f(x);
  const OperatorSettings settings(x.device());
  Tensors inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  const auto forward = [&](Tensors& saved) {
    saved = inputs;
    const RepeatScope scope(settings, RepeatScope::Gradients::ignored);
    return f(x);
  };
  return own_node("a part that is computed again in backward", inputs, forward, [f, settings](const Backward& in) {
    auto again = in.saved;
    again[0] = again[0].detach().requires_grad_(again[0].requires_grad());
    return repeat(settings, again, in.dy[0], f).gradients;
  });
}

torch::Tensor recomputed_in_chunks(const Recomputed& f, const torch::Tensor& x_rd, const Tensors& weights,
                                   std::int64_t chunks) {
  const auto rows = x_rd.size(0), count = std::min(chunks, rows);
  Tensors parts;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = rows * i / count, end = rows * (i + 1) / count;
    parts.push_back(recomputed(f, x_rd.narrow(0, first, end - first), weights));
  }
  return torch::cat(parts);
}

}  // namespace metaformer
