#pragma once
// A causal language model (GPT-2, Radford et al. 2019; nanoGPT): trunk and a linear head over the vocabulary.

#include "model/transformer.h"
#include "ops/linear.h"

namespace metaformer {

class Gpt : public SequenceModel {
 public:
  Gpt(const TransformerConfig& config, std::int64_t vocabulary);

  torch::Tensor forward(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor logits_of(const torch::Tensor& hidden) const override { return torch::linear(hidden, head_vd()); }
  std::vector<torch::Tensor> head_weights() const override { return {head_vd()}; }
  const TransformerConfig& config() const override { return config_; }
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;
  std::unique_ptr<ModelState> new_memory() const override;
  std::unique_ptr<Decoder> decoder(std::int64_t batch) const override;

 private:
  const torch::Tensor& head_vd() const { return head_.is_empty() ? transformer_->token_table_vd() : head_->weight(); }

  TransformerConfig config_;
  Transformer transformer_;
  Linear head_{nullptr};  // absent when the embedding table is used (tie_embeddings)
};

}  // namespace metaformer
