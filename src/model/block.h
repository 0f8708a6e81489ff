#pragma once
// A block: two residual branches, mixer and feed-forward, each with its norm.

#include <memory>

#include "attention/mixer.h"
#include "model/feed_forward.h"
#include "model/layer_norm.h"

namespace metaformer {

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const TransformerConfig& config);

  torch::Tensor forward(const torch::Tensor& x_bcd, const Visibility& visibility, MixerState* state, Pass& pass);

  NormPosition norm_position() const { return norm_position_; }
  const Mixer& mixer() const { return *mixer_; }
  const LayerNorm& mixer_norm() const { return mixer_norm_; }
  const FeedForward& feed_forward() const { return feed_forward_; }
  const LayerNorm& feed_forward_norm() const { return feed_forward_norm_; }

 private:
  // pre: x + branch(norm(x)); post: norm(x + branch(x)).
  template <class Branch>
  torch::Tensor residual(const torch::Tensor& x_bcd, LayerNorm& norm, Pass& pass, Branch branch);

  NormPosition norm_position_;
  double dropout_;
  LayerNorm mixer_norm_;
  std::shared_ptr<Mixer> mixer_;
  LayerNorm feed_forward_norm_;
  FeedForward feed_forward_;
};
TORCH_MODULE(Block);

}  // namespace metaformer
