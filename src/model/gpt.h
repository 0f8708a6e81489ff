#pragma once
// A causal language model (GPT-2, Radford et al. 2019; nanoGPT): trunk and a linear head over the vocabulary.

#include "model/transformer.h"

namespace metaformer {

class Gpt : public SequenceModel {
 public:
  Gpt(const ModelConfig& config, std::int64_t vocabulary);

  torch::Tensor forward(const Batch& batch, ModelState* state = nullptr) override;
  const ModelConfig& config() const override { return config_; }

 private:
  ModelConfig config_;
  Transformer transformer_;
  torch::nn::Linear head_{nullptr};  // absent when the embedding table is used (tie_embeddings)
};

}  // namespace metaformer
