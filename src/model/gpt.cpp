#include "model/gpt.h"

#include <algorithm>

#include "model/transformer_decoder.h"

namespace metaformer {

Gpt::Gpt(const ModelConfig& config, std::int64_t vocabulary)
    : config_(config), transformer_(register_module("transformer", Transformer(config, vocabulary, /*causal=*/true))) {
  if (!config.tie_embeddings)
    head_ = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(config.width, vocabulary).bias(false)));
}

torch::Tensor Gpt::forward(const Batch& batch, ModelState* state) {
  const auto hidden_bcd = transformer_->forward(batch, state);
  return torch::linear(hidden_bcd, head_vd());
}

std::unique_ptr<Decoder> Gpt::decoder(std::int64_t batch) const {
  const auto weights = parameters();
  const bool known = std::all_of(weights.begin(), weights.end(), [](const torch::Tensor& weight) {
    return weight.is_cpu() && weight.scalar_type() == torch::kFloat && weight.is_contiguous();
  });
  return known ? std::make_unique<TransformerDecoder>(*transformer_, head_vd(), config_.context, batch) : nullptr;
}

}  // namespace metaformer
