#include "model/block.h"

#include "attention/make_mixer.h"
#include "ops/dropout.h"

namespace metaformer {

BlockImpl::BlockImpl(const ModelConfig& config)
    : norm_position_(config.norm.position),
      dropout_(config.dropout),
      mixer_norm_(register_module("mixer_norm", LayerNorm(config.width, config.bias))),
      mixer_(register_module(
          "mixer",
          make_mixer(config.mixer,
                     {.width = config.width, .heads = config.heads, .dropout = config.dropout, .bias = config.bias}))),
      feed_forward_norm_(register_module("feed_forward_norm", LayerNorm(config.width, config.bias))),
      feed_forward_(register_module("feed_forward", FeedForward(config))) {}

template <class Branch>
torch::Tensor BlockImpl::residual(const torch::Tensor& x_bcd, LayerNorm& norm, Branch branch) {
  const auto dropped = [&](const torch::Tensor& y_bcd) { return dropout(y_bcd, is_training() ? dropout_ : 0); };
  if (norm_position_ == NormPosition::pre) return x_bcd + dropped(branch(norm(x_bcd)));
  return norm(x_bcd + dropped(branch(x_bcd)));
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x_bcd, const Visibility& visibility, MixerState* state) {
  const auto mixed = residual(
      x_bcd, mixer_norm_, [&](const torch::Tensor& y_bcd) { return mixer_->forward(y_bcd, y_bcd, visibility, state); });
  return residual(mixed, feed_forward_norm_, [&](const torch::Tensor& y_bcd) { return feed_forward_(y_bcd); });
}

}  // namespace metaformer
