#include "model/recurrent_decoder.h"

#include <algorithm>
#include <vector>

#include "attention/mixer_decoder.h"
#include "model/embedding.h"
#include "ops/recurrent_kernel.h"

namespace metaformer {

namespace {

std::vector<float> floats(std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); }

class RecurrentDecoder : public Decoder {
 public:
  RecurrentDecoder(const RecurrentConfig& config, const torch::Tensor& token_table_vd,
                   const RecurrentLayersImpl& layers, const torch::Tensor& head_vd, std::int64_t batch)
      : config_(config),
        batch_(batch),
        token_table_vd_(token_table_vd),
        embedding_factor_(static_cast<float>(factor_of(config.embedding, config.width))),
        head_(head_vd, torch::Tensor()),
        x_bd_(floats(batch * config.width)),
        of_x_bg_(floats(batch * config.gates() * config.width)),
        of_h_bg_(of_x_bg_),
        logits_bv_(floats(batch * head_vd.size(0))) {
    for (const auto& weights : layers.weights())
      layers_.push_back(
          {.of_input = LinearDecoder(weights[0], weights[2]), .of_state = LinearDecoder(weights[1], weights[3])});
  }

  void resume(ModelState& state) override { state_ = &RecurrentState::of(state); }

  std::span<const float> step(std::span<const std::int32_t> tokens_b) override {
    embed(tokens_b);
    const auto layer_size = batch_ * config_.width;
    const auto states = state_->layers();
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

  void embed(std::span<const std::int32_t> tokens_b) {
    for (std::int64_t b = 0; b < batch_; ++b) {
      const auto* row_d =
          token_table_vd_.const_data_ptr<float>() + tokens_b[static_cast<std::size_t>(b)] * config_.width;
      std::transform(row_d, row_d + config_.width, x_bd_.data() + b * config_.width,
                     [&](float x) { return x * embedding_factor_; });
    }
  }

  RecurrentConfig config_;
  std::int64_t batch_;
  torch::Tensor token_table_vd_;
  float embedding_factor_;
  std::vector<Layer> layers_;
  LinearDecoder head_;
  std::vector<float> x_bd_, of_x_bg_, of_h_bg_, logits_bv_;
  RecurrentState* state_ = nullptr;
};

}  // namespace

std::unique_ptr<Decoder> make_recurrent_decoder(const RecurrentConfig& config, const torch::Tensor& token_table_vd,
                                                const RecurrentLayersImpl& layers, const torch::Tensor& head_vd,
                                                std::int64_t batch) {
  return std::make_unique<RecurrentDecoder>(config, token_table_vd, layers, head_vd, batch);
}

}  // namespace metaformer
