#pragma once
// The position-wise branch of a block: down(activation(up(x))) (Vaswani et al. 2017, equation 2).

#include "config/model_config.h"
#include "ops/linear.h"

namespace metaformer {

class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const TransformerConfig& config);
  torch::Tensor forward(const torch::Tensor& x_bcd);

  Activation activation() const { return activation_; }
  const Linear& up() const { return up_; }
  const Linear& down() const { return down_; }

 private:
  Activation activation_;
  Linear up_, down_;
};
TORCH_MODULE(FeedForward);

}  // namespace metaformer
