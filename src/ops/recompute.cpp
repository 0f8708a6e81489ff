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

torch::autograd::variable_list gradients_of(const torch::Tensor& y, const torch::autograd::variable_list& inputs,
                                            const torch::Tensor& dy) {
  torch::autograd::variable_list wanted, found(inputs.size());
  for (const auto& input : inputs)
    if (input.requires_grad()) wanted.push_back(input);
  if (wanted.empty() || !y.requires_grad()) return found;
  const auto gradients = torch::autograd::grad({y}, wanted, {dy}, /*retain_graph=*/false, /*create_graph=*/false,
                                               /*allow_unused=*/true);
  for (std::size_t i = 0, next = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad()) found[i] = gradients[next++];
  return found;
}

namespace {

struct Part : torch::CustomClassHolder {
  Part(Recomputed given, torch::Device device) : f(std::move(given)), settings(device) {}
  Recomputed f;
  OperatorSettings settings;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const c10::intrusive_ptr<Part>& part,
                               const torch::Tensor& x, at::TensorList weights) {
    torch::autograd::variable_list kept = {x};
    kept.insert(kept.end(), weights.begin(), weights.end());
    context->save_for_backward(std::move(kept));
    context->saved_data["part"] = c10::IValue::make_capsule(part);
    const RepeatScope scope(part->settings, RepeatScope::Gradients::ignored);
    return part->f(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    require_first_order("a part that is computed again in backward");
    const auto part = c10::static_intrusive_pointer_cast<Part>(context->saved_data["part"].toCapsule());
    auto inputs = context->get_saved_variables();
    inputs[0] = inputs[0].detach().requires_grad_(inputs[0].requires_grad());
    torch::Tensor y;
    {
      const RepeatScope scope(part->settings, RepeatScope::Gradients::recorded);
      y = part->f(inputs[0]);
    }
    auto found = gradients_of(y, inputs, gradients.front());
    found.insert(found.begin(), torch::Tensor());  // of the part
    return found;
  }
};

}  // namespace

torch::Tensor recomputed(const Recomputed& f, const torch::Tensor& x, const std::vector<torch::Tensor>& weights) {
  if (!torch::GradMode::is_enabled()) return f(x);
  return Recompute::apply(c10::make_intrusive<Part>(f, x.device()), x, at::TensorList(weights));
}

torch::Tensor recomputed_in_chunks(const Recomputed& f, const torch::Tensor& x_rd,
                                   const std::vector<torch::Tensor>& weights, std::int64_t chunks) {
  const auto rows = x_rd.size(0), count = std::min(chunks, rows);
  std::vector<torch::Tensor> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = rows * i / count, end = rows * (i + 1) / count;
    parts.push_back(recomputed(f, x_rd.narrow(0, first, end - first), weights));
  }
  return torch::cat(parts);
}

}  // namespace metaformer
