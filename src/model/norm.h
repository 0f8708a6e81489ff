#pragma once
// The normalisation of model.norm over the last dimension: layer norm (Ba, Kiros, Hinton 2016), with or without bias,
// or RMS norm (Zhang and Sennrich 2019), which has none.

#include "config/block_config.h"
#include "ops/layer.h"

namespace metaformer {

class NormImpl : public Layer {
 public:
  // `bias`: of a norm that can have one.
  NormImpl(const NormConfig& config, std::int64_t width, bool bias);
  torch::Tensor forward(const torch::Tensor& x_bcd);

  const NormConfig& config() const { return config_; }
  const torch::Tensor& weight() const { return weight_; }
  const torch::Tensor& bias() const { return bias_; }  // undefined: none

 private:
  NormConfig config_;
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(Norm);

}  // namespace metaformer
