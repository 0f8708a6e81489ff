#pragma once
// A trunk and a linear head over the vocabulary: what the models that predict tokens have in common.

#include "model/transformer.h"
#include "ops/linear.h"

namespace metaformer {

class TokenModel : public SequenceModel {
 public:
  torch::Tensor forward(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor logits_of(const torch::Tensor& hidden) const override;
  std::vector<torch::Tensor> head_weights() const override { return {head_table()}; }
  const TransformerConfig& config() const { return config_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.width; }

 protected:
  // `vocabulary` tokens may be predicted; `marks` more, whose ids follow theirs, are only read.
  TokenModel(const TransformerConfig& config, std::int64_t vocabulary, std::int64_t marks, bool causal);

  // The same over another trunk of these options.
  TokenModel(const TransformerConfig& config, std::int64_t vocabulary, Transformer transformer);

  TransformerImpl& transformer() const { return *transformer_.ptr(); }
  torch::Tensor head_vd() const;

 private:
  const torch::Tensor& head_table() const {
    return head_.is_empty() ? transformer_->token_table_vd() : head_->weight();
  }

  TransformerConfig config_;
  std::int64_t vocabulary_;
  Transformer transformer_;
  Linear head_{nullptr};  // absent when the embedding table is used (model.embedding.tie)
};

}  // namespace metaformer
