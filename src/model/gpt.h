#pragma once
// A causal language model (GPT-2, Radford et al. 2019; nanoGPT): trunk and a linear head over the vocabulary.

#include "model/transformer.h"

namespace metaformer {

class Gpt : public SequenceModel {
 public:
  Gpt(const ModelConfig& config, std::int64_t vocabulary);

  torch::Tensor forward(const Batch& batch, ModelState* state = nullptr) override;
  const ModelConfig& config() const override { return config_; }
  std::unique_ptr<Decoder> decoder(std::int64_t batch) const override;

 private:
  const torch::Tensor& head_vd() const { return head_.is_empty() ? transformer_->token_table_vd() : head_->weight; }

  ModelConfig config_;
  Transformer transformer_;
  torch::nn::Linear head_{nullptr};  // absent when the embedding table is used (tie_embeddings)
};

}  // namespace metaformer
