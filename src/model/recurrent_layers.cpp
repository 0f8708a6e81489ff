#include "model/recurrent_layers.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/dropout.h"

namespace metaformer {

using torch::Tensor;

namespace {

// cuDNN's layers say in every call that the weights do not lie in its order, and copy them.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

RecurrentLayersImpl::RecurrentLayersImpl(const RecurrentConfig& config) : config_(config) {
  const auto d = config.width, rows = config.gates() * d;
  const auto init = Init::uniform(1 / std::sqrt(static_cast<double>(d)));
  const ParameterSpec matrices{.init = init, .decay = Decay::matrices, .hidden_matrices = config.gates()};
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* name, torch::IntArrayRef sizes, const ParameterSpec& spec) {
      return add_parameter(fmt::format("{}_l{}", name, layer), torch::zeros(sizes), spec);
    };
    weights_.push_back({add("weight_ih", {rows, d}, matrices), add("weight_hh", {rows, d}, matrices),
                        add("bias_ih", {rows}, {.init = init}), add("bias_hh", {rows}, {.init = init})});
  }
}

std::vector<RecurrentLayersImpl::Piece> RecurrentLayersImpl::pieces_of(const Tensor& starts_bc, std::int64_t length) {
  if (!starts_bc.defined()) return {{.first = 0, .count = length, .starts_b = {}}};
  const auto first_p = starts_bc.any(0).nonzero().select(1, 0).to(torch::kCPU);
  std::vector<Piece> pieces;
  for (std::int64_t i = 0; i < first_p.size(0); ++i) {
    const auto first = first_p[i].item<std::int64_t>();
    pieces.push_back({.first = first, .count = 0, .starts_b = starts_bc.select(1, first)});
  }
  if (pieces.empty() || pieces.front().first > 0) pieces.insert(pieces.begin(), Piece{});
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i].count = (i + 1 < pieces.size() ? pieces[i + 1].first : length) - pieces[i].first;
  return pieces;
}

Tensor RecurrentLayersImpl::through_piece(std::size_t layer, const Tensor& x_bcd, LayerStates& states_1bd) const {
  const bool keeps = torch::GradMode::is_enabled();  // what backward needs
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(x_bcd.is_cuda() ? &silence
                                                                     : c10::WarningUtils::get_warning_handler());
  auto& [hidden_1bd, cell_1bd] = states_1bd;
  Tensor y_bcd;
  if (config_.cell == RecurrentCell::lstm)
    std::tie(y_bcd, hidden_1bd, cell_1bd) =
        at::lstm(x_bcd, {hidden_1bd, cell_1bd}, weights_[layer], /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0,
                 keeps, /*bidirectional=*/false, /*batch_first=*/true);
  else
    std::tie(y_bcd, hidden_1bd) = at::gru(x_bcd, hidden_1bd, weights_[layer], /*has_biases=*/true, /*num_layers=*/1,
                                          /*dropout=*/0, keeps, /*bidirectional=*/false, /*batch_first=*/true);
  return y_bcd;
}

Tensor RecurrentLayersImpl::through_layer(std::size_t layer, const Tensor& x_bcd, LayerStates& states_1bd,
                                          const std::vector<Piece>& pieces) const {
  std::vector<Tensor> outputs;
  for (const auto& piece : pieces) {
    if (piece.starts_b.defined()) {
      const auto starts_b1 = piece.starts_b.unsqueeze(1);
      states_1bd.hidden_lbd = states_1bd.hidden_lbd.masked_fill(starts_b1, 0);
      if (states_1bd.cell_lbd.defined()) states_1bd.cell_lbd = states_1bd.cell_lbd.masked_fill(starts_b1, 0);
    }
    outputs.push_back(through_piece(layer, x_bcd.narrow(1, piece.first, piece.count), states_1bd));
  }
  return outputs.size() == 1 ? outputs.front() : torch::cat(outputs, 1);
}

Tensor RecurrentLayersImpl::forward(const Tensor& given_bcd, LayerStates& states, const Tensor& starts_bc, Pass& pass) {
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  auto x_bcd = given_bcd.to(weights_.front().front().scalar_type());
  const auto pieces = pieces_of(starts_bc, x_bcd.size(1));
  const auto zeros_1bd = torch::zeros({1, x_bcd.size(0), config_.width}, x_bcd.options());
  std::vector<Tensor> hidden, cell;
  for (std::size_t layer = 0; layer < weights_.size(); ++layer) {
    const auto of_layer = [&](const Tensor& state_lbd) {
      return state_lbd.defined() ? state_lbd.narrow(0, static_cast<std::int64_t>(layer), 1) : zeros_1bd;
    };
    LayerStates own{.hidden_lbd = of_layer(states.hidden_lbd), .cell_lbd = {}};
    if (config_.cell == RecurrentCell::lstm) own.cell_lbd = of_layer(states.cell_lbd);
    x_bcd = dropout(through_layer(layer, x_bcd, own, pieces), config_.dropout, pass);
    hidden.push_back(own.hidden_lbd);
    cell.push_back(own.cell_lbd);
  }
  states.hidden_lbd = torch::cat(hidden);
  if (config_.cell == RecurrentCell::lstm) states.cell_lbd = torch::cat(cell);
  return x_bcd;
}

}  // namespace metaformer
