#pragma once
// A model that writes one sequence while it sees another (Vaswani et al. 2017, section 3.1).

#include "model/token_model.h"
#include "model/transformer_state.h"

namespace metaformer {

// The source as the encoder has read it, and what the decoder has written, for generation.
class EncoderDecoderState : public ModelState {
 public:
  EncoderDecoderState(std::int64_t layers, std::int64_t batch, std::int64_t capacity, torch::Device device)
      : decoder_(layers, batch, capacity, /*memory=*/0, device), layers_(layers) {}

  // The same object; throws Error (exit code 1) when it is the state of another kind of model.
  static EncoderDecoderState& of(ModelState& state);

  std::int64_t length() const override { return decoder_.length(); }
  void reset() override;
  NamedTensors tensors() const override { return decoder_.tensors(); }
  void load(const NamedTensors& saved, const std::string& source) override { decoder_.load(saved, source); }
  std::int64_t bytes() const override;

  // Sequence i becomes what sequence rows_b[i] was; there may be another number of them.
  void select(const torch::Tensor& rows_b);

  bool has_source() const { return source_bsd_.defined(); }
  void set_source(const torch::Tensor& source_bsd, const torch::Tensor& segments_bs);
  const torch::Tensor& source_bsd() const { return source_bsd_; }
  const torch::Tensor& segments_bs() const { return segments_bs_; }

  TransformerState& decoder() { return decoder_; }
  std::vector<MixerState>& of_source() { return of_source_; }  // by block

 private:
  TransformerState decoder_;
  std::int64_t layers_;
  torch::Tensor source_bsd_, segments_bs_;  // as Batch has them
  std::vector<MixerState> of_source_;
};

class EncoderDecoder : public TokenModel {
 public:
  // `vocabulary` tokens of texts. One more mark, whose id follows theirs, is read before a target and predicted behind
  // it; sources end with it.
  EncoderDecoder(const EncoderDecoderConfig& config, std::int64_t vocabulary);

  // With a state, the first batch brings the source, and later ones only the tokens that follow.
  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;

  TransformerImpl& encoder() { return *encoder_; }

 private:
  // Vectors of the source [b, s, d].
  torch::Tensor encode(const Batch& batch, Pass& pass);

  Transformer encoder_;
};

}  // namespace metaformer
