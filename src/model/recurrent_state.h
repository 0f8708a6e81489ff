#pragma once
// The state of a recurrent model: what each layer hands from token to token.

#include "model/model_state.h"

namespace metaformer {

// What the layers start from, or end with.
struct LayerStates {
  torch::Tensor hidden_lbd;
  torch::Tensor cell_lbd;  // of an LSTM; undefined for a GRU
};

// Of any number of tokens: the same object serves training, evaluation and generation. It has no gradients.
class RecurrentState : public ModelState {
 public:
  RecurrentState(std::int64_t layers, std::int64_t width, bool has_cell, torch::Device device)
      : layers_(layers), width_(width), has_cell_(has_cell), device_(device) {}

  // The same object; throws Error (exit code 1) when it is the state of another kind of model.
  static RecurrentState& of(ModelState& state);

  std::int64_t length() const override { return length_; }
  void reset() override;
  NamedTensors tensors() const override;
  std::int64_t sequence_dimension(const std::string& name) const override;
  void load(const NamedTensors& saved, const std::string& source) override;
  std::int64_t bytes() const override;

  // Undefined before the first token.
  const LayerStates& layers() const { return states_; }
  // Of the newest tokens, [b, 1]; undefined: all are of one segment.
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

}  // namespace metaformer
