#pragma once
// The feed-forward language model.

#include "config/model_config.h"
#include "model/embedding.h"
#include "model/sequence_model.h"
#include "ops/linear.h"

namespace metaformer {

// The state of a model that sees a fixed number of tokens: the newest of them.
class WindowState : public ModelState {
 public:
  // For `batch` sequences and the `capacity` newest tokens.
  WindowState(std::int64_t batch, std::int64_t capacity, torch::Device device);

  std::int64_t length() const override { return length_; }
  void reset() override;
  NamedTensors tensors() const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override { return bytes_of(tensors()); }

  // The newest tokens and their segments, [b, m], the newest last. Where there is no token yet: id 0 of the segment
  // no_segment.
  static constexpr std::int64_t no_segment = -2;
  const torch::Tensor& ids_bm() const { return ids_bm_; }
  const torch::Tensor& segments_bm() const { return segments_bm_; }

  // These follow; they lie behind those that it holds.
  void advance(const torch::Tensor& all_ids_be, const torch::Tensor& all_segments_be);

 private:
  std::int64_t length_ = 0;
  torch::Tensor ids_bm_, segments_bm_;
};

// The feed-forward language model of Bengio et al. (2003, "A neural probabilistic language model", section 2), without
// direct connections from the embeddings to the output:
//
//   y = b + U tanh(d + H x)
//
// x are the embeddings of the last `window` tokens, the oldest first. In place of tokens before a text or of another
// document stands a learned vector.

// The output layer: U and b.
class WindowHeadImpl : public Layer {
 public:
  WindowHeadImpl(const FeedForwardModelConfig& config, std::int64_t vocabulary);

  const torch::Tensor& weight() const { return weight_vh_; }  // undefined: the embedding table is used
  const torch::Tensor& bias() const { return bias_v_; }

 private:
  torch::Tensor weight_vh_, bias_v_;
};
TORCH_MODULE(WindowHead);

class FeedForwardModel : public SequenceModel {
 public:
  FeedForwardModel(const FeedForwardModelConfig& config, std::int64_t vocabulary);

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor logits_of(const torch::Tensor& hidden) const override;
  std::vector<torch::Tensor> head_weights() const override { return {head_vh(), head_->bias()}; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.hidden; }
  bool has_endless_state() const override { return true; }
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;

 private:
  torch::Tensor windows(const Batch& batch, WindowState& before, Pass& pass);
  const torch::Tensor& head_vh() const {
    return head_->weight().defined() ? head_->weight() : token_embedding_->weight();
  }

  FeedForwardModelConfig config_;
  Embedding token_embedding_;
  Embedding padding_embedding_;
  Linear hidden_layer_;  // H and d
  WindowHead head_;
};

}  // namespace metaformer
