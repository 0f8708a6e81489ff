#include "model/token_model.h"

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
  return chooses_by_whole_sequence(config().mixer) || remembers() ? 0 : config().layers;
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

void EncoderDecoderState::reset() {
  decoder_.reset();
  source_bsd_ = segments_bs_ = torch::Tensor();
  of_source_.clear();
}

std::int64_t EncoderDecoderState::bytes() const {
  auto total = decoder_.bytes();
  for (const auto& mixer : of_source_) total += mixer.bytes();
  return total;
}

void EncoderDecoderState::set_source(const torch::Tensor& source_bsd, const torch::Tensor& segments_bs) {
  source_bsd_ = source_bsd;
  segments_bs_ = segments_bs;
  of_source_.assign(static_cast<std::size_t>(layers_), MixerState(source_bsd.size(1), source_bsd.device()));
}

void EncoderDecoderState::select(const torch::Tensor& rows_b) {
  decoder_.select(rows_b);
  source_bsd_ = source_bsd_.index_select(0, rows_b);
  if (segments_bs_.defined()) segments_bs_ = segments_bs_.index_select(0, rows_b);
  for (auto& mixer : of_source_) mixer.select(rows_b);
}

// The table of tokens that the encoder reads is the decoder's, or its own.
static Transformer make_encoder(const EncoderDecoderConfig& config, std::int64_t tokens, const Embedding& table) {
  const auto blocks = config.encoder_blocks();
  return config.shared_embedding ? Transformer(blocks, tokens, /*causal=*/false, table)
                                 : Transformer(blocks, tokens, /*causal=*/false);
}

EncoderDecoder::EncoderDecoder(const EncoderDecoderConfig& config, std::int64_t vocabulary)
    : TokenModel(config, vocabulary + 1, Transformer(config, vocabulary + 1)),
      encoder_(register_module("encoder", make_encoder(config, vocabulary + 1, transformer().token_embedding()))) {}

torch::Tensor EncoderDecoder::encode(const Batch& batch, Pass& pass) {
  Batch source;
  source.ids_bc = batch.source_ids_bs;
  source.segments_bc = batch.source_segments_bs;
  source.first_row = batch.first_row;
  return encoder_->forward(source, nullptr, pass);
}

// Every token of the target sees all of the source but its padding.
static Visibility visibility_of(const torch::Tensor& ids_bc, const torch::Tensor& segments_bs) {
  if (!segments_bs.defined()) return {};
  return {.query_segment_bc = torch::zeros_like(ids_bc), .key_segment_be = segments_bs};
}

torch::Tensor EncoderDecoder::hidden(const Batch& batch, ModelState* given, Pass& pass) {
  if (given == nullptr) {
    const TransformerImpl::SourceView view{
        .source = {.context_bsd = encode(batch, pass),
                   .visibility = visibility_of(batch.ids_bc, batch.source_segments_bs)}};
    return transformer().forward(batch, nullptr, pass, &view);
  }
  auto& state = state_as<EncoderDecoderState>(*given);
  if (!state.has_source()) state.set_source(encode(batch, pass), batch.source_segments_bs);
  const TransformerImpl::SourceView view{
      .source = {.context_bsd = state.source_bsd(), .visibility = visibility_of(batch.ids_bc, state.segments_bs())},
      .states = &state.of_source()};
  return transformer().forward(batch, &state.decoder(), pass, &view);
}

// Of a view, because autocast then casts the table for each slice of a batch. Slices would share the cast of the table
// itself, and autograd would add the table's three gradients (source, target, head) in an order that depends on which
// thread made the cast.
torch::Tensor EncoderDecoder::logits_of(const torch::Tensor& hidden) const {
  const auto table_vd = head_vd();
  return torch::linear(hidden, table_vd.view_as(table_vd));
}

std::unique_ptr<ModelState> EncoderDecoder::new_state(std::int64_t batch, std::int64_t capacity) const {
  return std::make_unique<EncoderDecoderState>(config().layers, batch, capacity, head_weights().front().device());
}

}  // namespace metaformer
