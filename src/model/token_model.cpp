#include "model/token_model.h"

namespace metaformer {

TokenModel::TokenModel(const TransformerConfig& config, std::int64_t vocabulary, std::int64_t marks, bool causal)
    : TokenModel(config, vocabulary, Transformer(config, vocabulary + marks, causal)) {}

TokenModel::TokenModel(const TransformerConfig& config, std::int64_t vocabulary, Transformer transformer)
    : config_(config), vocabulary_(vocabulary), transformer_(register_module("transformer", std::move(transformer))) {
  if (!config.embedding.tie)
    head_ = register_module("head",
                            Linear(config.width, vocabulary, /*bias=*/false, Init::normal(), /*hidden_matrices=*/0));
}

torch::Tensor TokenModel::forward(const Batch& batch, ModelState* state, Pass& pass) {
  return logits_of(hidden(batch, state, pass));
}

torch::Tensor TokenModel::logits_of(const torch::Tensor& hidden) const { return torch::linear(hidden, head_vd()); }

torch::Tensor TokenModel::head_vd() const {
  const auto& table = head_table();
  return table.size(0) == vocabulary_ ? table : table.narrow(0, 0, vocabulary_);
}

}  // namespace metaformer
