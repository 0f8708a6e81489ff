#include "model/parameter_buffer.h"

#include <algorithm>

namespace metaformer {

namespace {

// Views start on cache lines. The elements between them stay zero.
constexpr std::int64_t alignment = 16;

std::int64_t aligned(std::int64_t count) { return (count + alignment - 1) / alignment * alignment; }

}  // namespace

ParameterBuffer::ParameterBuffer(torch::nn::Module& model) {
  for (const auto& [name, value, spec] : specified_parameters(model))
    views_.push_back({.name = name,
                      .parameter = value,
                      .count = value.numel(),
                      .decay = spec.decay,
                      .hidden_matrices = spec.hidden_matrices});
  std::stable_sort(views_.begin(), views_.end(), [](const View& a, const View& b) { return a.decay < b.decay; });
  std::int64_t total = 0;
  for (auto& view : views_) {
    view.offset = total;
    total += aligned(view.count);
  }

  const torch::NoGradGuard no_grad;
  const auto options =
      views_.empty() ? torch::TensorOptions() : views_.front().parameter.options().requires_grad(false);
  values_ = torch::zeros({total}, options);
  gradients_ = torch::zeros({total}, options);
  for (auto& view : views_) {
    auto place = part(values_, view);
    place.copy_(view.parameter);
    view.parameter.set_data(place);
    view.parameter.mutable_grad() = part(gradients_, view);
  }
}

const ParameterBuffer::View* ParameterBuffer::first_not_finite(const torch::Tensor& buffer) const {
  if (buffer.isfinite().all().item<bool>()) return nullptr;
  const auto found = std::find_if(views_.begin(), views_.end(),
                                  [&](const View& view) { return !part(buffer, view).isfinite().all().item<bool>(); });
  return found == views_.end() ? nullptr : &*found;
}

torch::Tensor ParameterBuffer::part(const torch::Tensor& buffer, const View& view) {
  return buffer.narrow(0, view.offset, view.count).view(view.parameter.sizes());
}

}  // namespace metaformer
