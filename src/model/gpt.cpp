#include "model/gpt.h"

namespace metaformer {

Gpt::Gpt(const ModelConfig& config, std::int64_t vocabulary)
    : config_(config), transformer_(register_module("transformer", Transformer(config, vocabulary, /*causal=*/true))) {
  if (!config.tie_embeddings)
    head_ = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(config.width, vocabulary).bias(false)));
}

torch::Tensor Gpt::forward(const Batch& batch, ModelState* state) {
  const auto hidden_bcd = transformer_->forward(batch, state);
  return torch::linear(hidden_bcd, head_.is_empty() ? transformer_->token_table_vd() : head_->weight);
}

}  // namespace metaformer
