#include "model/block.h"

#include "attention/mixers.h"
#include "ops/dropout.h"

namespace metaformer {

static MixerShape mixer_shape(const TransformerConfig& config) {
  auto shape = config.mixer_shape();
  shape.output_std = branch_output_std(config.layers);
  return shape;
}

BlockImpl::BlockImpl(const TransformerConfig& config)
    : norm_position_(std::get<LayerNormConfig>(config.norm).position),
      dropout_(config.dropout),
      mixer_norm_(register_module("mixer_norm", LayerNorm(config.width, config.bias))),
      mixer_(register_module("mixer", make_mixer(config.mixer, mixer_shape(config)))),
      feed_forward_norm_(register_module("feed_forward_norm", LayerNorm(config.width, config.bias))),
      feed_forward_(register_module("feed_forward", FeedForward(config))) {}

template <class Branch>
torch::Tensor BlockImpl::residual(const torch::Tensor& x_bcd, LayerNorm& norm, Pass& pass, Branch branch) {
  const auto dropped = [&](const torch::Tensor& y_bcd) { return dropout(y_bcd, dropout_, pass); };
  if (norm_position_ == NormPosition::pre) return x_bcd + dropped(branch(norm(x_bcd)));
  return norm(x_bcd + dropped(branch(x_bcd)));
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x_bcd, const Visibility& visibility, MixerState* state,
                                 Pass& pass) {
  const auto mixed = residual(x_bcd, mixer_norm_, pass, [&](const torch::Tensor& y_bcd) {
    return mixer_->forward(y_bcd, y_bcd, visibility, state, pass);
  });
  return residual(mixed, feed_forward_norm_, pass, [&](const torch::Tensor& y_bcd) { return feed_forward_(y_bcd); });
}

}  // namespace metaformer
