#include "model/feed_forward.h"

#include "ops/gelu.h"

namespace metaformer {

FeedForwardImpl::FeedForwardImpl(const ModelConfig& config)
    : activation_(config.feed_forward.activation),
      up_(register_module(
          "up", torch::nn::Linear(torch::nn::LinearOptions(config.width, config.hidden_width()).bias(config.bias)))),
      down_(register_module(
          "down", torch::nn::Linear(torch::nn::LinearOptions(config.hidden_width(), config.width).bias(config.bias)))) {
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x_bcd) {
  const auto hidden = up_(x_bcd);
  return down_(activation_ == Activation::gelu ? metaformer::gelu(hidden) : torch::relu(hidden));
}

}  // namespace metaformer
