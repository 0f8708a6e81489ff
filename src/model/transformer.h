#pragma once
// Embeddings, a stack of blocks, and the final norm that pre-norm needs: the trunk that every head sits on.

#include <vector>

#include "model/block.h"
#include "model/sequence_model.h"

namespace metaformer {

class TransformerImpl : public torch::nn::Module {
 public:
  TransformerImpl(const ModelConfig& config, std::int64_t vocabulary, bool causal);

  // Hidden vectors [b, c, d]. Throws Error when the sequence is longer than the model's context.
  torch::Tensor forward(const Batch& batch, ModelState* state);

  const torch::Tensor& token_table_vd() const { return token_embedding_->weight; }

 private:
  torch::Tensor embed(const Batch& batch, std::int64_t first_position);

  ModelConfig config_;
  bool causal_;
  torch::nn::Embedding token_embedding_, position_embedding_;
  std::vector<Block> blocks_;
  LayerNorm final_norm_{nullptr};  // pre-norm only
};
TORCH_MODULE(Transformer);

}  // namespace metaformer
