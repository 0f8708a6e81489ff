#pragma once
// The position-wise branch of a block, of width d and hidden width h:
//   mlp    down(f(up(x)))                                (Vaswani et al. 2017, equation 2)
//   gated  down(f(gate) * u), [gate | u] = up(x)         (Shazeer 2020); gate and up are one product
// With `chunks` it is computed for some tokens after the others, and again in backward.

#include "config/model_config.h"
#include "ops/linear.h"

namespace metaformer {

class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const TransformerConfig& config);
  torch::Tensor forward(const torch::Tensor& x_bcd);

  const FeedForwardConfig& config() const { return config_; }
  const Linear& up() const { return up_; }      // [h, d]; gated: [2 h, d], the gate's rows first
  const Linear& down() const { return down_; }  // [d, h]

 private:
  FeedForwardConfig config_;
  Linear up_, down_;
};
TORCH_MODULE(FeedForward);

}  // namespace metaformer
