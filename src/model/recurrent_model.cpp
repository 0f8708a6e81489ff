#include "model/recurrent_model.h"

#include "model/decodable.h"
#include "model/recurrent_decoder.h"

namespace metaformer {

namespace {

// Where segments begin, after what the state has seen.
torch::Tensor starts_of(const torch::Tensor& segments_bc, const RecurrentState* state) {
  if (!segments_bc.defined()) return {};
  if (state == nullptr || !state->segment_b1().defined()) return segment_starts(segments_bc);
  const auto starts_be = segment_starts(torch::cat({state->segment_b1(), segments_bc}, 1));
  return starts_be.narrow(1, 1, segments_bc.size(1));
}

}  // namespace

RecurrentModel::RecurrentModel(const RecurrentConfig& config, std::int64_t vocabulary)
    : config_(config),
      token_embedding_(register_module("token_embedding", Embedding(vocabulary, config.width, config.embedding.std))),
      layers_(register_module(config.cell == RecurrentCell::lstm ? "lstm" : "gru", RecurrentLayers(config))) {
  if (!config.embedding.tie)
    head_ = register_module("head",
                            Linear(config.width, vocabulary, /*bias=*/false, Init::normal(), /*hidden_matrices=*/0));
}

torch::Tensor RecurrentModel::forward(const Batch& batch, ModelState* state, Pass& pass) {
  return logits_of(hidden(batch, state, pass));
}

torch::Tensor RecurrentModel::hidden(const Batch& batch, ModelState* given, Pass& pass) {
  auto* state = given == nullptr ? nullptr : &RecurrentState::of(*given);
  if (state != nullptr && batch.begins) state->reset();
  auto x_bcd = token_embedding_(batch.ids_bc);
  if (const auto factor = factor_of(config_.embedding, config_.width); factor != 1) x_bcd = x_bcd * factor;
  x_bcd = dropout(drop_features(x_bcd, config_.embedding.dropout, pass), config_.dropout, pass);
  auto states = state == nullptr ? LayerStates{} : state->layers();
  x_bcd = layers_->forward(x_bcd, states, starts_of(batch.segments_bc, state), pass);
  if (state != nullptr) state->advance(batch.ids_bc.size(1), states, batch.segments_bc);
  return x_bcd;
}

std::unique_ptr<ModelState> RecurrentModel::new_state(std::int64_t, std::int64_t) const {
  return std::make_unique<RecurrentState>(config_.layers, config_.width, config_.cell == RecurrentCell::lstm,
                                          token_embedding_->weight().device());
}

std::unique_ptr<Decoder> RecurrentModel::decoder(std::int64_t batch) const {
  if (!can_decode(*this)) return nullptr;
  return make_recurrent_decoder(config_, token_embedding_->weight(), *layers_, head_vd(), batch);
}

std::unique_ptr<ModelState> RecurrentModel::new_memory() const {
  return config_.carry_state ? new_state(0, 0) : nullptr;
}

}  // namespace metaformer
