#include "model/feed_forward.h"

#include "ops/gelu.h"

namespace metaformer {

FeedForwardImpl::FeedForwardImpl(const TransformerConfig& config)
    : activation_(std::get<MlpConfig>(config.feed_forward).activation),
      up_(register_module("up", Linear(config.width, config.hidden_width(), config.bias))),
      down_(register_module("down", Linear(config.hidden_width(), config.width, config.bias,
                                           Init::normal(branch_output_std(config.layers))))) {}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x_bcd) {
  const auto hidden = up_(x_bcd);
  return down_(activation_ == Activation::gelu ? metaformer::gelu(hidden) : torch::relu(hidden));
}

}  // namespace metaformer
