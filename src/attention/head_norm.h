#pragma once
// RMS normalisation of the vectors of every head (Zhang and Sennrich 2019), for queries and keys (Henry et al. 2020);
// and the temperature that takes the place of its gain in cosine attention (Liu et al. 2022, Swin v2).

#include "ops/layer.h"
#include "ops/norms.h"

namespace metaformer {

class HeadNormImpl : public Layer {
 public:
  static constexpr double epsilon = 1e-6;

  HeadNormImpl(std::int64_t head_width, bool learned_gain) : head_width_(head_width) {
    if (learned_gain) gain_k_ = add_parameter("weight", torch::ones(head_width), {.init = Init::ones()});
  }

  // x / sqrt(mean x^2 + epsilon) * gain, over the features of a head; statistics in float32 or wider. Without a learned
  // gain it is 1, and |x|^2 the width of a head.
  torch::Tensor forward(const torch::Tensor& x_bnck) {
    const auto type = torch::promote_types(x_bnck.scalar_type(), torch::kFloat);
    const auto gain_k = gain_k_.defined() ? gain_k_ : torch::ones(head_width_, x_bnck.options().dtype(type));
    // By token, as projections lie and as heads are joined again.
    return rms_norm(x_bnck.transpose(1, 2), gain_k, epsilon).transpose(1, 2).to(x_bnck.scalar_type());
  }

  // The parameter, or ones.
  torch::Tensor gain() const { return gain_k_.defined() ? gain_k_ : torch::ones(head_width_); }

 private:
  std::int64_t head_width_;
  torch::Tensor gain_k_;  // undefined: none is learned
};
TORCH_MODULE(HeadNorm);

// [n, k], the same for every head. Undefined for an empty norm.
inline torch::Tensor gain_of(const HeadNorm& norm, std::int64_t heads) {
  return norm.is_empty() ? torch::Tensor() : norm->gain().detach().repeat({heads, 1});
}

// Registers what each head multiplies its scores by, [n]; undefined where that is not learned.
inline torch::Tensor add_temperature(Layer& owner, std::int64_t heads, bool learned) {
  if (!learned) return {};
  return owner.add_parameter("temperature", torch::ones(heads), {.init = Init::ones()});
}

}  // namespace metaformer
