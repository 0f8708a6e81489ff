#pragma once
// Which models decoders take.

#include <torch/nn/module.h>

#include <algorithm>

namespace metaformer {

// Whether all weights are as decoders read them: float32, contiguous and on the CPU.
inline bool can_decode(const torch::nn::Module& model) {
  const auto weights = model.parameters();
  return std::all_of(weights.begin(), weights.end(), [](const torch::Tensor& weight) {
    return weight.is_cpu() && weight.scalar_type() == torch::kFloat && weight.is_contiguous();
  });
}

}  // namespace metaformer
