#include "optim/optimizer.h"

namespace metaformer {

std::string Optimizer::first_not_finite() const {
  for (const auto& [name, tensor] : state())
    if (!tensor.isfinite().all().item<bool>()) return name;
  return "";
}

std::optional<torch::Tensor> as_optional(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace metaformer
