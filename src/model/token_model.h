#pragma once
// Models over tokens: GPT, masked language models, and encoders with decoders.

#include "model/transformer.h"
#include "ops/linear.h"

namespace metaformer {

// The common base of the models that predict tokens: a trunk and a linear head over the vocabulary.
class TokenModel : public SequenceModel {
 public:
  torch::Tensor logits_of(const torch::Tensor& hidden) const override { return linear_product(hidden, head_vd(), {}); }
  std::vector<torch::Tensor> head_weights() const override { return {head_table()}; }
  const TransformerConfig& config() const { return config_; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.width; }

 protected:
  // `vocabulary`: the number of tokens that may be predicted. The trunk, with the options of `config`, may read further
  // tokens, whose ids follow.
  TokenModel(const TransformerConfig& config, std::int64_t vocabulary, Transformer transformer);

  TransformerImpl& transformer() const { return *transformer_.ptr(); }
  torch::Tensor head_vd() const;

 private:
  const torch::Tensor& head_table() const {
    return head_.is_empty() ? transformer_->token_table_vd() : head_->weight();
  }

  TransformerConfig config_;
  std::int64_t vocabulary_;
  Transformer transformer_;
  Linear head_{nullptr};  // absent when the embedding table is used (model.embedding.tie)
};

// A causal language model (GPT-2, Radford et al. 2019; nanoGPT).
class Gpt : public TokenModel {
 public:
  Gpt(const TransformerConfig& config, std::int64_t vocabulary)
      : TokenModel(config, vocabulary, Transformer(config, vocabulary, /*causal=*/true)) {}

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override {
    return wanted_rows(transformer().forward(batch, state, pass), batch);
  }
  bool remembers() const override { return config().memory > 0; }
  bool has_endless_state() const override { return remembers() || config().has_endless_state(); }
  bool has_recordable_steps() const override;
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override {
    return transformer().new_state(batch, capacity);
  }
  std::unique_ptr<ModelState> new_memory() const override { return transformer().new_memory(); }
  std::unique_ptr<Decoder> decoder(std::int64_t batch,
                                   WeightPrecision precision = WeightPrecision::fp32) const override;
};

// A model that predicts hidden tokens from those on both sides of them (BERT, Devlin et al. 2019).
//
// The mask token's id is the vocabulary: the embedding table has a row for it, the logits have none. Has no state.
class MaskedLanguageModel : public TokenModel {
 public:
  MaskedLanguageModel(const TransformerConfig& config, std::int64_t vocabulary)
      : TokenModel(config, vocabulary, Transformer(config, vocabulary + 1, /*causal=*/false)) {}

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
};

// A causal trunk from whose last vector h all tokens of a row are predicted (MAD's compression, Poli et al. 2024): at
// place i the head reads f(f(h + s_i)), where s_i is a sinusoid of the place and f(x) = gelu(W norm(x) + b). Has no
// state.
class Compressor : public TokenModel {
 public:
  Compressor(const TransformerConfig& config, std::int64_t vocabulary);

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;

 private:
  std::vector<Norm> norms_;
  std::vector<Linear> layers_;
  PositionTable sinusoids_cd_;
};

// The state of generation: the encoded source, and the state of the decoder.
class EncoderDecoderState : public TransformerState {
 public:
  EncoderDecoderState(std::int64_t layers, std::int64_t batch, std::int64_t capacity, torch::Device device)
      : TransformerState(layers, batch, capacity, /*memory=*/0, device), layers_(layers) {}

  void reset() override {
    TransformerState::reset();
    source_bsd = segments_bs = torch::Tensor();
    of_source.clear();
  }
  std::int64_t bytes() const override { return TransformerState::bytes() + bytes_of(of_source); }

  // Sequence i gets the source and the state that sequence rows_b[i] had; the number of sequences may change.
  void select(const torch::Tensor& rows_b);
  // The same for sequences whose old and new sources are equal, and stay in place.
  void select_beside_source(const torch::Tensor& rows_b) { TransformerState::select(rows_b); }

  void set_source(const torch::Tensor& given_bsd, const torch::Tensor& given_segments_bs) {
    source_bsd = given_bsd;
    segments_bs = given_segments_bs;
    of_source.assign(static_cast<std::size_t>(layers_), MixerState(source_bsd.size(1), source_bsd.device()));
  }

  torch::Tensor source_bsd, segments_bs;  // encoded source, and Batch's segments; undefined source: not read yet
  std::vector<MixerState> of_source;      // by block

 private:
  std::int64_t layers_;
};

// A model that generates one sequence while it sees another (Vaswani et al. 2017, section 3.1).
class EncoderDecoder : public TokenModel {
 public:
  // `vocabulary`: the number of tokens of texts. A mark, whose id follows theirs, is read before a target and predicted
  // after it; sources end with it.
  EncoderDecoder(const EncoderDecoderConfig& config, std::int64_t vocabulary);

  // With a state, the first batch contains the source, and later ones only the tokens that follow.
  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor logits_of(const torch::Tensor& hidden) const override;
  // Not with LSH, which sorts all tokens again.
  bool has_recordable_steps() const override { return !config().any_mixer(chooses_by_whole_sequence); }
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;

  TransformerImpl& encoder() { return *encoder_; }

 private:
  // Vectors of the source [b, s, d].
  torch::Tensor encode(const Batch& batch, Pass& pass);

  Transformer encoder_;
};

}  // namespace metaformer
