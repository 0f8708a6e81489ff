#pragma once
// Recurrent language models.

#include "config/model_config.h"
#include "model/embedding.h"
#include "model/sequence_model.h"
#include "ops/linear.h"

namespace metaformer {

class RecurrentLayers;

// A language model with recurrent layers (Mikolov et al. 2010; Zaremba et al. 2014): embeddings, an LSTM (Hochreiter
// and Schmidhuber 1997) or GRU (Cho et al. 2014), and a linear layer over the vocabulary.
//
// Its state takes any number of tokens, is used in training, evaluation and generation, and has no gradients.
class RecurrentModel : public SequenceModel {
 public:
  RecurrentModel(const RecurrentConfig& config, std::int64_t vocabulary);

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor logits_of(const torch::Tensor& hidden) const override { return linear_product(hidden, head_vd(), {}); }
  std::vector<torch::Tensor> head_weights() const override { return {head_vd()}; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.width; }
  bool remembers() const override { return config_.carry_state; }
  bool has_endless_state() const override { return true; }
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;
  std::unique_ptr<ModelState> new_memory() const override;
  std::unique_ptr<Decoder> decoder(std::int64_t batch,
                                   WeightPrecision precision = WeightPrecision::fp32) const override;

 private:
  const torch::Tensor& head_vd() const { return head_.is_empty() ? token_embedding_->weight() : head_->weight(); }

  RecurrentConfig config_;
  Embedding token_embedding_;
  std::shared_ptr<RecurrentLayers> layers_;
  Linear head_{nullptr};  // absent when the embedding table is used (model.embedding.tie)
};

}  // namespace metaformer
