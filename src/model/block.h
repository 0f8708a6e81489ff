#pragma once
// A block: norms, a mixer, the feed-forward branch.

#include <memory>
#include <optional>
#include <utility>

#include "attention/mixer.h"
#include "attention/state_mixer.h"
#include "config/model_config.h"
#include "ops/layer.h"
#include "ops/linear.h"
#include "ops/residual_norm.h"

namespace metaformer {

// The normalisation of model.norm over the last dimension: layer norm (Ba, Kiros, Hinton 2016), with or without bias,
// or RMS norm (Zhang and Sennrich 2019), which has none.
class NormImpl : public Layer {
 public:
  // `bias`: with a bias, if norms of this kind can have one.
  NormImpl(const NormConfig& config, std::int64_t width, bool bias);
  torch::Tensor forward(const torch::Tensor& x_bcd);

  // The same for `rows` vectors, in decoders. The norm's tensors are float32, contiguous and on the CPU.
  void normalise_rows(const float* x_rd, float* y_rd, std::int64_t rows) const;

  // The norm in the form that the kernels of residual_norm() take; nullopt for norms that they do not have.
  std::optional<RowNorm> row_norm() const;

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
// With `chunks` it is computed for one chunk of the tokens after another, and recomputed in backward.
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
  Norm output_norm{nullptr};  // norm position both only; then `norm` is for the input
};

// The norm before the next branch, if that norm reads nothing but the residual stream.
struct NextNorm {
  const NormImpl* norm = nullptr;  // nullptr: none
  bool for_products = false;       // the branch reads the result only through linear layers
};

// The residual stream, and the norm before the next branch if a kernel has computed it together with the last sum.
struct NormedStream {
  NormedStream(torch::Tensor x, torch::Tensor normed = {}) : x_bcd(std::move(x)), normed_bcd(std::move(normed)) {}

  torch::Tensor x_bcd;
  torch::Tensor normed_bcd;  // undefined: not computed yet
};

// An encoder's output for its decoder: vectors, and which tokens see which of them.
struct Source {
  torch::Tensor context_bsd;
  Visibility visibility;
};

// Two branches, mixer and feed-forward, each with its norms and, unless switched off, a residual connection. The second
// may be absent.
class BlockImpl : public torch::nn::Module {
 public:
  // `layer`: the index of the block.
  explicit BlockImpl(const TransformerConfig& config, std::int64_t layer = 0);

  // A decoder's block, with a branch of cross attention between the other two.
  explicit BlockImpl(const EncoderDecoderConfig& config, std::int64_t layer = 0);

  // The inputs of a mixer besides the newest tokens.
  struct Surroundings {
    const Visibility& visibility;
    MixerState* state = nullptr;
    torch::Tensor memory_bmd = {};   // the block's inputs for tokens before x; undefined: none
    const Source* source = nullptr;  // for a decoder's block
    MixerState* source_state = nullptr;
  };

  torch::Tensor forward(const torch::Tensor& x_bcd, const Surroundings& surroundings, Pass& pass) {
    return forward(x_bcd, surroundings, /*next=*/{}, pass).x_bcd;
  }
  // `next`: the norm after the block.
  NormedStream forward(const NormedStream& x, const Surroundings& surroundings, const NextNorm& next, Pass& pass);

  // The norm before the first branch; none if the branch reads the stream without a norm.
  NextNorm first_norm() const;

  // `to_bcd` plus the result of a branch for x; for reversible blocks, in which the two differ.
  torch::Tensor add_mixer(const torch::Tensor& to_bcd, const torch::Tensor& x_bcd, const Surroundings& surroundings,
                          Pass& pass) {
    return add_mixer(to_bcd, x_bcd, surroundings, /*next=*/{}, pass).x_bcd;
  }
  torch::Tensor add_feed_forward(const torch::Tensor& to_bcd, const torch::Tensor& x_bcd, Pass& pass) {
    return add_feed_forward(to_bcd, x_bcd, /*next=*/{}, pass).x_bcd;
  }

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

  NormedStream add_mixer(const torch::Tensor& to_bcd, const NormedStream& x, const Surroundings& surroundings,
                         const NextNorm& next, Pass& pass);
  NormedStream add_source(const NormedStream& x, const Surroundings& surroundings, const NextNorm& next, Pass& pass);
  NormedStream add_feed_forward(const torch::Tensor& to_bcd, const NormedStream& x, const NextNorm& next, Pass& pass);

  NextNorm next_norm(const BranchNorms& norms, bool for_products) const;

  // pre: x + branch(norm(x)); post: norm(x + branch(x)); both: x + output_norm(branch(norm(x))). Without residual
  // connections no "x +". Dropout acts on the result of the branch. A probe observes that, and the stream after it is
  // added.
  template <class Branch>
  NormedStream apply(const torch::Tensor& to_bcd, const NormedStream& read, BranchNorms& norms, StreamPoint of_branch,
                     StreamPoint after, const NextNorm& next, Pass& pass, Branch branch);

  // The end of a branch and the next norm by one kernel; nullopt if there is none for them, or a probe observes the
  // values between them.
  std::optional<NormedStream> add_by_kernel(const torch::Tensor& to_bcd, const torch::Tensor& y_bcd,
                                            const NextNorm& next, Pass& pass) const;

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
