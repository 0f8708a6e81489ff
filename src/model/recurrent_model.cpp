#include "model/recurrent_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "attention/mixer_decoder.h"
#include "cpu/decoding.h"
#include "ops/dropout.h"

namespace metaformer {

using torch::Tensor;

namespace {

constexpr const char* length_name = "length";
constexpr const char* hidden_name = "hidden";
constexpr const char* cell_name = "cell";
constexpr const char* segment_name = "segment";

// The recurrent states of all layers, at the start or end of a text.
struct LayerStates {
  Tensor hidden_lbd;
  Tensor cell_lbd;  // of an LSTM; undefined for a GRU
};

class RecurrentState : public ModelState {
 public:
  RecurrentState(const RecurrentConfig& config, torch::Device device) : config_(config), device_(device) {}

  std::int64_t length() const override { return length_; }
  void reset() override { *this = RecurrentState(config_, device_); }

  NamedTensors tensors() const override {
    if (length_ == 0) return {};
    NamedTensors all = {{length_name, torch::tensor(length_)}, {hidden_name, layers.hidden_lbd}};
    if (has_cell()) all.emplace_back(cell_name, layers.cell_lbd);
    if (segment_b1.defined()) all.emplace_back(segment_name, segment_b1);
    return all;
  }
  std::int64_t sequence_dimension(const std::string& name) const override { return name == segment_name ? 0 : 1; }

  void load(const NamedTensors& saved, const std::string& source) override {
    SavedTensors from(saved, source, device_);
    RecurrentState loaded(config_, device_);
    if (!saved.empty()) {
      loaded.length_ = from.take_length(length_name);
      if (loaded.length_ == 0) fail_to_continue(source, "its length is 0");
      loaded.layers.hidden_lbd = from.take(hidden_name, {config_.layers, any_size, config_.width});
      const auto rows = loaded.layers.hidden_lbd.size(1);
      if (has_cell()) loaded.layers.cell_lbd = from.take(cell_name, {config_.layers, rows, config_.width});
      if (from.contains(segment_name)) loaded.segment_b1 = from.take(segment_name, {rows, 1});
    }
    from.require_empty();
    *this = std::move(loaded);
  }

  // To be called after `layers` was updated in place for `tokens` more tokens of the same segments.
  void count(std::int64_t tokens) { length_ += tokens; }

  // Sets the state after `tokens` more tokens with these segments (undefined: one), for which the layers ended with
  // `states`.
  void advance(std::int64_t tokens, const LayerStates& states, const Tensor& segments_bc) {
    length_ += tokens;
    layers = {.hidden_lbd = states.hidden_lbd.detach(), .cell_lbd = has_cell() ? states.cell_lbd.detach() : Tensor()};
    // A copy: a view would keep the whole batch.
    segment_b1 = segments_bc.defined() ? segments_bc.narrow(1, segments_bc.size(1) - 1, 1).clone() : Tensor();
  }

  LayerStates layers;  // undefined before the first token
  Tensor segment_b1;   // the segments of the newest tokens; undefined: all are of one segment

 private:
  bool has_cell() const { return config_.cell == RecurrentCell::lstm; }

  RecurrentConfig config_;
  torch::Device device_;
  std::int64_t length_ = 0;
};

// Consecutive tokens between which no row's states are reset.
struct Piece {
  std::int64_t first = 0, count = 0;
  Tensor starts_b = {};  // the rows whose states are reset before it; undefined: none
};

std::vector<Piece> pieces_of(const Tensor& starts_bc, std::int64_t length) {
  if (!starts_bc.defined()) return {{.first = 0, .count = length}};
  const auto first_p = starts_bc.any(0).nonzero().select(1, 0).to(torch::kCPU);
  std::vector<Piece> pieces = {{.first = 0, .count = length}};
  for (std::int64_t i = 0; i < first_p.size(0); ++i) {
    const auto first = first_p[i].item<std::int64_t>();
    pieces.back().count = first - pieces.back().first;
    if (first == 0) pieces.clear();
    pieces.push_back({.first = first, .count = length - first, .starts_b = starts_bc.select(1, first)});
  }
  return pieces;
}

// Suppresses a warning: cuDNN's layers warn in every call that the weights are not in its layout, and copy them.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

// Recurrent layers, computed by LibTorch. The parameters have the names (weight_ih_l0, ...), the order of gates and the
// initial values, uniform(-1 / sqrt(d), 1 / sqrt(d)), of torch.nn.LSTM or torch.nn.GRU.
class RecurrentLayers : public Layer {
 public:
  explicit RecurrentLayers(const RecurrentConfig& config) : config_(config) {
    const auto d = config.width, rows = config.gates() * d;
    const auto init = Init::uniform(1 / std::sqrt(static_cast<double>(d)));
    const ParameterSpec matrices{.init = init, .decay = Decay::matrices, .hidden_matrices = config.gates()};
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const auto add = [&](const char* name, torch::IntArrayRef sizes, const ParameterSpec& spec) {
        return add_parameter(fmt::format("{}_l{}", name, layer), sizes, spec);
      };
      weights_.push_back({add("weight_ih", {rows, d}, matrices), add("weight_hh", {rows, d}, matrices),
                          add("bias_ih", {rows}, {.init = init}), add("bias_hh", {rows}, {.init = init})});
    }
  }

  // Computes all layers for x_bcd, with dropout after each. `states`: the initial states (undefined: zeros), which are
  // replaced by the final ones. starts_bc, bool: tokens before which the states of their row are reset to zeros;
  // undefined: none. Computes in float32 under autocast, too: oneDNN has no LSTM in bfloat16 on every CPU.
  Tensor forward(const Tensor& given_bcd, LayerStates& states, const Tensor& starts_bc, Pass& pass) {
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

  // By layer: weight_ih, weight_hh, bias_ih, bias_hh.
  const std::vector<std::vector<Tensor>>& weights() const { return weights_; }

 private:
  // A layer's states are [1, b, d].
  Tensor through_layer(std::size_t layer, const Tensor& x_bcd, LayerStates& states_1bd,
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

  Tensor through_piece(std::size_t layer, const Tensor& x_bcd, LayerStates& states_1bd) const {
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

  RecurrentConfig config_;
  std::vector<std::vector<Tensor>> weights_;
};

namespace {

// The decoder of a recurrent model on the CPU, in float32, with buffers that are allocated once. A call of LibTorch's
// layer for one token takes several times as long as its arithmetic.
class RecurrentDecoder : public Decoder {
 public:
  // The tensors are float32, contiguous and on the CPU; they are kept alive.
  RecurrentDecoder(const RecurrentConfig& config, const Tensor& token_table_vd, const RecurrentLayers& layers,
                   const Tensor& head_vd, std::int64_t batch, WeightPrecision precision)
      : config_(config),
        batch_(batch),
        token_table_vd_(token_table_vd),
        embedding_factor_(static_cast<float>(factor_of(config.embedding, config.width))),
        head_(head_vd, Tensor(), precision),
        x_bd_(floats(batch * config.width)),
        of_x_bg_(floats(batch * config.gates() * config.width)),
        of_h_bg_(of_x_bg_),
        logits_bv_(floats(batch * head_vd.size(0))) {
    for (const auto& weights : layers.weights())
      layers_.push_back({.of_input = LinearDecoder(weights[0], weights[2], precision),
                         .of_state = LinearDecoder(weights[1], weights[3], precision)});
  }

  void resume(ModelState& state) override { state_ = &state_as<RecurrentState>(state); }

  std::span<const float> step(std::span<const std::int32_t> tokens_b) override {
    embed_rows(token_table_vd_, tokens_b, embedding_factor_, x_bd_.data());
    const auto layer_size = batch_ * config_.width;
    const auto states = state_->layers;
    auto* h_bd = states.hidden_lbd.data_ptr<float>();
    auto* c_bd = config_.cell == RecurrentCell::lstm ? states.cell_lbd.data_ptr<float>() : nullptr;
    const float* x_bd = x_bd_.data();
    for (const auto& layer : layers_) {
      layer.of_input.apply(x_bd, of_x_bg_.data(), batch_);
      layer.of_state.apply(h_bd, of_h_bg_.data(), batch_);
      if (config_.cell == RecurrentCell::lstm) {
        step_lstm(of_x_bg_.data(), of_h_bg_.data(), h_bd, c_bd, batch_, config_.width);
        c_bd += layer_size;
      } else {
        step_gru(of_x_bg_.data(), of_h_bg_.data(), h_bd, batch_, config_.width);
      }
      x_bd = h_bd;
      h_bd += layer_size;
    }
    head_.apply(x_bd, logits_bv_.data(), batch_);
    state_->count(1);
    return logits_bv_;
  }

 private:
  struct Layer {
    LinearDecoder of_input, of_state;
  };

  RecurrentConfig config_;
  std::int64_t batch_;
  Tensor token_table_vd_;
  float embedding_factor_;
  std::vector<Layer> layers_;
  LinearDecoder head_;
  std::vector<float> x_bd_, of_x_bg_, of_h_bg_, logits_bv_;
  RecurrentState* state_ = nullptr;
};

// Whether a segment begins at each token, after those that the state has seen.
Tensor starts_of(const Tensor& segments_bc, const RecurrentState* state) {
  if (!segments_bc.defined()) return {};
  if (state == nullptr || !state->segment_b1.defined()) return segment_starts(segments_bc);
  const auto starts_be = segment_starts(torch::cat({state->segment_b1, segments_bc}, 1));
  return starts_be.narrow(1, 1, segments_bc.size(1));
}

}  // namespace

RecurrentModel::RecurrentModel(const RecurrentConfig& config, std::int64_t vocabulary)
    : config_(config),
      token_embedding_(register_module("token_embedding", Embedding(vocabulary, config.width, config.embedding.std))),
      layers_(register_module(config.cell == RecurrentCell::lstm ? "lstm" : "gru",
                              std::make_shared<RecurrentLayers>(config))) {
  if (!config.embedding.tie)
    head_ = register_module("head",
                            Linear(config.width, vocabulary, /*bias=*/false, Init::normal(), /*hidden_matrices=*/0));
}

Tensor RecurrentModel::hidden(const Batch& batch, ModelState* given, Pass& pass) {
  auto* state = given == nullptr ? nullptr : &state_as<RecurrentState>(*given);
  if (state != nullptr && batch.begins) state->reset();
  auto x_bcd = token_embedding_(batch.ids_bc);
  if (const auto factor = factor_of(config_.embedding, config_.width); factor != 1) x_bcd = x_bcd * factor;
  x_bcd = dropout(drop_features(x_bcd, config_.embedding.dropout, pass), config_.dropout, pass);
  auto states = state == nullptr ? LayerStates{} : state->layers;
  x_bcd = layers_->forward(x_bcd, states, starts_of(batch.segments_bc, state), pass);
  if (state != nullptr) state->advance(batch.ids_bc.size(1), states, batch.segments_bc);
  return wanted_rows(x_bcd, batch);
}

std::unique_ptr<ModelState> RecurrentModel::new_state(std::int64_t, std::int64_t) const {
  return std::make_unique<RecurrentState>(config_, token_embedding_->weight().device());
}

std::unique_ptr<Decoder> RecurrentModel::decoder(std::int64_t batch, WeightPrecision precision) const {
  if (!can_decode(*this)) return nullptr;
  return std::make_unique<RecurrentDecoder>(config_, token_embedding_->weight(), *layers_, head_vd(), batch, precision);
}

std::unique_ptr<ModelState> RecurrentModel::new_memory() const {
  return config_.carry_state ? new_state(0, 0) : nullptr;
}

}  // namespace metaformer
