#pragma once
// RMS normalisation of the vectors of every head (Zhang and Sennrich 2019), for queries and keys (Henry et al. 2020).

#include "ops/layer.h"
#include "ops/rms_norm.h"

namespace metaformer {

class HeadNormImpl : public Layer {
 public:
  static constexpr double epsilon = 1e-6;

  explicit HeadNormImpl(std::int64_t head_width)
      : gain_k_(add_parameter("weight", torch::ones(head_width), {.init = Init::ones()})) {}

  // x / sqrt(mean x^2 + epsilon) * gain, over the features of a head; statistics in float32 or wider.
  torch::Tensor forward(const torch::Tensor& x_bnck) {
    // By token, as projections lie and as heads are joined again.
    return rms_norm(x_bnck.transpose(1, 2), gain_k_, epsilon).transpose(1, 2).to(x_bnck.scalar_type());
  }

  const torch::Tensor& gain() const { return gain_k_; }

 private:
  torch::Tensor gain_k_;
};
TORCH_MODULE(HeadNorm);

// Undefined for an empty one.
inline torch::Tensor gain_of(const HeadNorm& norm) { return norm.is_empty() ? torch::Tensor() : norm->gain().detach(); }

}  // namespace metaformer
