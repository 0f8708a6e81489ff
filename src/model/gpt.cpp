#include "model/gpt.h"

#include "model/decodable.h"
#include "model/transformer_decoder.h"

namespace metaformer {

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

}  // namespace metaformer
