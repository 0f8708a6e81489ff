#pragma once
// Recurrent language models: layers, state, decoder.

#include <string>
#include <vector>

#include "config/model_config.h"
#include "model/embedding.h"
#include "model/sequence_model.h"
#include "ops/layer.h"
#include "ops/linear.h"
#include "ops/pass.h"

namespace metaformer {

// The state of a recurrent model: what each layer hands from token to token.

// The layers' states at the start or end of a text.
struct LayerStates {
  torch::Tensor hidden_lbd;
  torch::Tensor cell_lbd;  // of an LSTM; undefined for a GRU
};

// It takes any number of tokens; the same object serves training, evaluation and generation. It has no gradients.
class RecurrentState : public ModelState {
 public:
  RecurrentState(std::int64_t layers, std::int64_t width, bool has_cell, torch::Device device)
      : layers_(layers), width_(width), has_cell_(has_cell), device_(device) {}

  std::int64_t length() const override { return length_; }
  void reset() override;
  NamedTensors tensors() const override;
  std::int64_t sequence_dimension(const std::string& name) const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override { return bytes_of(tensors()); }

  // Undefined before the first token.
  const LayerStates& layers() const { return states_; }
  // The segments of the newest tokens, [b, 1]; undefined: all are of one segment.
  const torch::Tensor& segment_b1() const { return segment_b1_; }

  // The layers' states were replaced where they lie, by those after so many more tokens of the same segments.
  void count(std::int64_t tokens) { length_ += tokens; }

  // After tokens with these segments (undefined: all of one) the layers ended with `states`.
  void advance(std::int64_t tokens, const LayerStates& states, const torch::Tensor& segments_bc);

 private:
  std::int64_t layers_, width_;
  bool has_cell_;
  torch::Device device_;
  std::int64_t length_ = 0;
  LayerStates states_;
  torch::Tensor segment_b1_;
};

// The layers of an LSTM (Hochreiter and Schmidhuber 1997) or a GRU (Cho et al. 2014), computed by LibTorch.

// With the parameters of torch.nn.LSTM or torch.nn.GRU under their names (weight_ih_l0, ...), in their order of gates
// and with their initial values, uniform(-1 / sqrt(d), 1 / sqrt(d)).
class RecurrentLayersImpl : public Layer {
 public:
  explicit RecurrentLayersImpl(const RecurrentConfig& config);

  // x_bcd through all layers, with dropout after each. `states`: what they start from, undefined: zeros; replaced by
  // what they end with. starts_bc, bool: tokens before which the states of their rows become zeros; undefined: none.
  // Under autocast in float32: oneDNN has no LSTM in bfloat16 on every CPU.
  torch::Tensor forward(const torch::Tensor& x_bcd, LayerStates& states, const torch::Tensor& starts_bc, Pass& pass);

  // By layer: weight_ih, weight_hh, bias_ih, bias_hh.
  const std::vector<std::vector<torch::Tensor>>& weights() const { return weights_; }

 private:
  // Consecutive tokens with states that no row loses in between.
  struct Piece {
    std::int64_t first = 0, count = 0;
    torch::Tensor starts_b;  // the rows that begin with zeros; undefined: none
  };
  static std::vector<Piece> pieces_of(const torch::Tensor& starts_bc, std::int64_t length);

  // A layer's states are [1, b, d].
  torch::Tensor through_layer(std::size_t layer, const torch::Tensor& x_bcd, LayerStates& states_1bd,
                              const std::vector<Piece>& pieces) const;
  torch::Tensor through_piece(std::size_t layer, const torch::Tensor& x_bcd, LayerStates& states_1bd) const;

  RecurrentConfig config_;
  std::vector<std::vector<torch::Tensor>> weights_;
};
TORCH_MODULE(RecurrentLayers);

// A language model with recurrent layers (Mikolov et al. 2010; Zaremba et al. 2014): embeddings, an LSTM or GRU, and a
// linear layer over the vocabulary.
class RecurrentModel : public SequenceModel {
 public:
  RecurrentModel(const RecurrentConfig& config, std::int64_t vocabulary);

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
  torch::Tensor logits_of(const torch::Tensor& hidden) const override { return torch::linear(hidden, head_vd()); }
  std::vector<torch::Tensor> head_weights() const override { return {head_vd()}; }
  std::int64_t context() const override { return config_.context; }
  std::int64_t width() const override { return config_.width; }
  bool remembers() const override { return config_.carry_state; }
  bool has_endless_state() const override { return true; }
  std::unique_ptr<ModelState> new_state(std::int64_t batch, std::int64_t capacity) const override;
  std::unique_ptr<ModelState> new_memory() const override;
  std::unique_ptr<Decoder> decoder(std::int64_t batch) const override;

 private:
  const torch::Tensor& head_vd() const { return head_.is_empty() ? token_embedding_->weight() : head_->weight(); }

  RecurrentConfig config_;
  Embedding token_embedding_;
  RecurrentLayers layers_;
  Linear head_{nullptr};  // absent when the embedding table is used (model.embedding.tie)
};

}  // namespace metaformer
