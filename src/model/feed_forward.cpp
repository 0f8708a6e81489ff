#include "model/feed_forward.h"

#include <cmath>

namespace metaformer {

namespace {

std::int64_t hidden_width(const ModelConfig& config) {
  return std::llround(static_cast<double>(config.width) * config.feed_forward.ratio);
}

}  // namespace

FeedForwardImpl::FeedForwardImpl(const ModelConfig& config)
    : activation_(config.feed_forward.activation),
      up_(register_module(
          "up", torch::nn::Linear(torch::nn::LinearOptions(config.width, hidden_width(config)).bias(config.bias)))),
      down_(register_module(
          "down", torch::nn::Linear(torch::nn::LinearOptions(hidden_width(config), config.width).bias(config.bias)))) {}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x_bcd) {
  const auto hidden = up_(x_bcd);
  return down_(activation_ == Activation::gelu ? torch::gelu(hidden) : torch::relu(hidden));
}

}  // namespace metaformer
