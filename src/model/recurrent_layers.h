#pragma once
// The layers of an LSTM (Hochreiter and Schmidhuber 1997) or a GRU (Cho et al. 2014), computed by LibTorch.

#include <string>
#include <vector>

#include "config/recurrent_config.h"
#include "model/recurrent_state.h"
#include "ops/layer.h"
#include "ops/pass.h"

namespace metaformer {

// With the parameters of torch.nn.LSTM or torch.nn.GRU under their names (weight_ih_l0, ...), in their order of gates
// and with their initial values, uniform(-1 / sqrt(d), 1 / sqrt(d)).
class RecurrentLayersImpl : public Layer {
 public:
  explicit RecurrentLayersImpl(const RecurrentConfig& config);

  // x_bcd through all layers, with dropout after each. `states`: what they start from, undefined: zeros; replaced by
  // what they end with. starts_bc, bool: tokens before which the states of their rows become zeros; undefined: none.
  // Under autocast in float32: oneDNN has no LSTM in bfloat16 on every CPU.
  torch::Tensor forward(const torch::Tensor& x_bcd, LayerStates& states, const torch::Tensor& starts_bc, Pass& pass);

  // Of each layer: weight_ih, weight_hh, bias_ih, bias_hh.
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

}  // namespace metaformer
