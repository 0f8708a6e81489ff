#include "model/gpt.h"

#include <algorithm>

#include "model/transformer_decoder.h"

namespace metaformer {

Gpt::Gpt(const TransformerConfig& config, std::int64_t vocabulary)
    : config_(config), transformer_(register_module("transformer", Transformer(config, vocabulary, /*causal=*/true))) {
  if (!config.embedding.tie)
    head_ = register_module("head",
                            Linear(config.width, vocabulary, /*bias=*/false, Init::normal(), /*hidden_matrices=*/0));
}

torch::Tensor Gpt::forward(const Batch& batch, ModelState* state, Pass& pass) {
  return logits_of(hidden(batch, state, pass));
}

torch::Tensor Gpt::hidden(const Batch& batch, ModelState* state, Pass& pass) {
  return transformer_->forward(batch, state, pass);
}

std::unique_ptr<ModelState> Gpt::new_state(std::int64_t batch, std::int64_t capacity) const {
  return transformer_->new_state(batch, capacity);
}

std::unique_ptr<ModelState> Gpt::new_memory() const { return transformer_->new_memory(); }

std::unique_ptr<Decoder> Gpt::decoder(std::int64_t batch) const {
  const auto weights = parameters();
  const bool known = std::all_of(weights.begin(), weights.end(), [](const torch::Tensor& weight) {
    return weight.is_cpu() && weight.scalar_type() == torch::kFloat && weight.is_contiguous();
  });
  return known ? make_transformer_decoder(*transformer_, head_vd(), batch) : nullptr;
}

}  // namespace metaformer
