#pragma once
// Layer normalisation (Ba, Kiros, Hinton 2016) over the last dimension, with or without bias.

#include "ops/layer.h"

namespace metaformer {

class LayerNormImpl : public Layer {
 public:
  LayerNormImpl(std::int64_t width, bool bias) : width_(width) {
    weight_ = add_parameter("weight", torch::ones(width), {.init = Init::ones()});
    if (bias) bias_ = add_parameter("bias", torch::zeros(width), {.init = Init::zeros()});
  }
  torch::Tensor forward(const torch::Tensor& x_bcd) { return torch::layer_norm(x_bcd, {width_}, weight_, bias_); }

  const torch::Tensor& weight() const { return weight_; }
  const torch::Tensor& bias() const { return bias_; }  // undefined: none

 private:
  std::int64_t width_;
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(LayerNorm);

}  // namespace metaformer
