#pragma once
// The feed-forward language model.

#include "config/model_config.h"
#include "model/embedding.h"
#include "model/sequence_model.h"
#include "ops/linear.h"

namespace metaformer {

class WindowState;

// The feed-forward language model of Bengio et al. (2003, "A neural probabilistic language model", section 2), without
// direct connections from the embeddings to the output:
//
//   y = b + U tanh(d + H x)
//
// x are the embeddings of the last `window` tokens, the oldest first. A learned vector replaces tokens before a text or
// of another document.
class FeedForwardModel : public SequenceModel {
 public:
  FeedForwardModel(const FeedForwardModelConfig& config, std::int64_t vocabulary);

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor logits_of(const torch::Tensor& hidden) const override {
    return torch::linear(hidden, head_vh_, head_bias_v_);
  }
  std::vector<torch::Tensor> head_weights() const override { return {head_vh_, head_bias_v_}; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.hidden; }
  bool has_endless_state() const override { return true; }
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;

 private:
  torch::Tensor windows(const Batch& batch, WindowState& before, Pass& pass);

  FeedForwardModelConfig config_;
  Embedding token_embedding_;
  Embedding padding_embedding_;
  Linear hidden_layer_;                  // H and d
  torch::Tensor head_vh_, head_bias_v_;  // U, which may be the embedding table, and b
};

}  // namespace metaformer
