#include "model/token_model.h"

#include "base/error.h"
#include "model/sequence_model.h"
#include "model/transformer_decoder.h"

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

Gpt::Gpt(const TransformerConfig& config, std::int64_t vocabulary)
    : TokenModel(config, vocabulary, /*marks=*/0, /*causal=*/true) {}

torch::Tensor Gpt::hidden(const Batch& batch, ModelState* state, Pass& pass) {
  return transformer().forward(batch, state, pass);
}

std::int64_t Gpt::recordable_layers() const {
  return config().mixer->chooses_by_whole_sequence() || remembers() ? 0 : config().layers;
}

std::unique_ptr<ModelState> Gpt::new_state(std::int64_t batch, std::int64_t capacity) const {
  return transformer().new_state(batch, capacity);
}

std::unique_ptr<ModelState> Gpt::new_memory() const { return transformer().new_memory(); }

std::unique_ptr<Decoder> Gpt::decoder(std::int64_t batch) const {
  return can_decode(*this) ? make_transformer_decoder(transformer(), head_vd(), batch) : nullptr;
}

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config, std::int64_t vocabulary)
    : TokenModel(config, vocabulary, /*marks=*/1, /*causal=*/false) {}

torch::Tensor MaskedLanguageModel::hidden(const Batch& batch, ModelState* state, Pass& pass) {
  if (state != nullptr) throw Error(ExitCode::failure, "a masked language model has no state to continue from");
  return wanted_rows(transformer().forward(batch, nullptr, pass), batch);
}

}  // namespace metaformer
