#pragma once
// A block: norms, a mixer, the feed-forward branch.

#include <memory>

#include "attention/mixer.h"
#include "attention/state_mixer.h"
#include "config/model_config.h"
#include "ops/layer.h"
#include "ops/linear.h"

namespace metaformer {

// The normalisation of model.norm over the last dimension: layer norm (Ba, Kiros, Hinton 2016), with or without bias,
// or RMS norm (Zhang and Sennrich 2019), which has none.
class NormImpl : public Layer {
 public:
  // `bias`: of a norm that can have one.
  NormImpl(const NormConfig& config, std::int64_t width, bool bias);
  torch::Tensor forward(const torch::Tensor& x_bcd);

  // The same for `rows` vectors, in decoders. The norm's tensors are float32, contiguous and on the CPU.
  void normalise_rows(const float* x_rd, float* y_rd, std::int64_t rows) const;

  const NormConfig& config() const { return config_; }
  const torch::Tensor& weight() const { return weight_; }
  const torch::Tensor& bias() const { return bias_; }  // undefined: none

 private:
  NormConfig config_;
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(Norm);

// The position-wise branch of a block, of width d and hidden width h:
//   mlp    down(f(up(x)))                                (Vaswani et al. 2017, equation 2)
//   gated  down(f(gate) * u), [gate | u] = up(x)         (Shazeer 2020); gate and up are one product
// With `chunks` it is computed for some tokens after the others, and again in backward.
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

// The norms of a branch.
struct BranchNorms {
  Norm norm{nullptr};
  Norm output_norm{nullptr};  // norm position both only; `norm` is then that of the input
};

// An encoder's output as its decoder sees it: vectors, and who sees which of them.
struct Source {
  torch::Tensor context_bsd;
  Visibility visibility;
};

// Two branches, mixer and feed-forward, each with its norms and, unless switched off, a residual connection. The second
// may be absent.
class BlockImpl : public torch::nn::Module {
 public:
  // `layer`: which of the blocks it is.
  explicit BlockImpl(const TransformerConfig& config, std::int64_t layer = 0);

  // With a branch between the other two that shows the tokens a source.
  explicit BlockImpl(const EncoderDecoderConfig& config, std::int64_t layer = 0);

  // The inputs of a mixer besides the newest tokens.
  struct Surroundings {
    const Visibility& visibility;
    MixerState* state = nullptr;
    torch::Tensor memory_bmd = {};   // what entered the block for tokens before x; undefined: nothing
    const Source* source = nullptr;  // of a block that sees one
    MixerState* source_state = nullptr;
  };

  torch::Tensor forward(const torch::Tensor& x_bcd, const Surroundings& surroundings, Pass& pass);

  // `to_bcd` with what a branch makes of x added to it; for reversible blocks, where the two are not the same.
  torch::Tensor add_mixer(const torch::Tensor& to_bcd, const torch::Tensor& x_bcd, const Surroundings& surroundings,
                          Pass& pass);
  torch::Tensor add_source(const torch::Tensor& x_bcd, const Surroundings& surroundings, Pass& pass);
  torch::Tensor add_feed_forward(const torch::Tensor& to_bcd, const torch::Tensor& x_bcd, Pass& pass);

  NormPosition norm_position() const { return norm_position_; }
  bool has_residual() const { return has_residual_; }
  const Mixer& mixer() const { return *mixer_; }
  Mixer& mixer() { return *mixer_; }
  Mixer* cross_mixer() { return cross_mixer_.get(); }  // nullptr: it sees no source
  const BranchNorms& mixer_norms() const { return mixer_norms_; }
  bool has_convolution() const { return !convolution_.is_empty(); }
  const FeedForward& feed_forward() const { return feed_forward_; }  // empty: model.feed_forward is none
  const BranchNorms& feed_forward_norms() const { return feed_forward_norms_; }

 private:
  BranchNorms register_norms(const std::string& branch, const TransformerConfig& config);

  // pre: x + branch(norm(x)); post: norm(x + branch(x)); both: x + output_norm(branch(norm(x))). Without residual
  // connections no "x +". Dropout acts on what is added to `to_bcd`. A probe observes that, and the stream behind it.
  template <class Branch>
  torch::Tensor apply(const torch::Tensor& to_bcd, const torch::Tensor& read_bed, BranchNorms& norms,
                      StreamPoint of_branch, StreamPoint after, Pass& pass, Branch branch);

  NormPosition norm_position_;
  bool has_residual_;
  double dropout_;
  BranchNorms mixer_norms_;
  ResidualConvolution convolution_{nullptr};  // empty: none
  std::shared_ptr<Mixer> mixer_;
  BranchNorms cross_norms_;
  std::shared_ptr<Mixer> cross_mixer_;  // nullptr: sees no source
  BranchNorms feed_forward_norms_;
  FeedForward feed_forward_{nullptr};
};
TORCH_MODULE(Block);

}  // namespace metaformer
