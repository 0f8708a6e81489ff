#include "model/transformer_decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/transformer_state.h"
#include "ops/gelu_kernel.h"

namespace metaformer {

namespace {

std::vector<float> floats(std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); }

void add(const std::vector<float>& from, std::vector<float>& to) {
  std::transform(from.begin(), from.end(), to.begin(), to.begin(), std::plus<>());
}

}  // namespace

void NormDecoder::apply(const float* x_bd, float* y_bd, std::int64_t batch) const {
  normalise_rows(x_bd, weight_d_.const_data_ptr<float>(), bias_d_.defined() ? bias_d_.const_data_ptr<float>() : nullptr,
                 y_bd, batch, weight_d_.size(0));
}

BlockDecoder::BlockDecoder(const Block& block, std::unique_ptr<MixerDecoder> mixer, std::int64_t batch)
    : batch_(batch),
      norm_position_(block->norm_position()),
      activation_(block->feed_forward()->activation()),
      mixer_norm_(block->mixer_norm()),
      feed_forward_norm_(block->feed_forward_norm()),
      mixer_(std::move(mixer)),
      up_(block->feed_forward()->up()),
      down_(block->feed_forward()->down()),
      normal_bd_(floats(batch * up_.inputs())),
      branch_bd_(floats(batch * up_.inputs())),
      hidden_(floats(batch * up_.outputs())),
      slope_(hidden_) {}

template <class Branch>
void BlockDecoder::residual(std::vector<float>& x_bd, const NormDecoder& norm, Branch branch) {
  if (norm_position_ == NormPosition::pre) {
    norm.apply(x_bd.data(), normal_bd_.data(), batch_);
    branch(normal_bd_.data(), branch_bd_.data());
    add(branch_bd_, x_bd);
    return;
  }
  branch(x_bd.data(), branch_bd_.data());
  add(x_bd, branch_bd_);
  norm.apply(branch_bd_.data(), x_bd.data(), batch_);
}

void BlockDecoder::feed_forward(const float* x_bd, float* y_bd) {
  up_.apply(x_bd, hidden_.data(), batch_);
  if (activation_ == Activation::gelu) {
    gelu_with_slope(hidden_.data(), hidden_.data(), slope_.data(), static_cast<std::int64_t>(hidden_.size()));
  } else {
    std::transform(hidden_.begin(), hidden_.end(), hidden_.begin(), [](float x) { return std::max(x, 0.0F); });
  }
  down_.apply(hidden_.data(), y_bd, batch_);
}

void BlockDecoder::step(std::vector<float>& x_bd) {
  residual(x_bd, mixer_norm_, [&](const float* x, float* y) { mixer_->step(x, y); });
  residual(x_bd, feed_forward_norm_, [&](const float* x, float* y) { feed_forward(x, y); });
}

namespace {

using MixerDecoders = std::vector<std::unique_ptr<MixerDecoder>>;

class TransformerDecoder : public Decoder {
 public:
  TransformerDecoder(const TransformerImpl& transformer, MixerDecoders mixers, const torch::Tensor& head_vd,
                     std::int64_t context, std::int64_t batch)
      : batch_(batch),
        context_(context),
        width_(head_vd.size(1)),
        token_table_vd_(transformer.token_table_vd()),
        position_table_cd_(transformer.position_table_cd()),
        head_(head_vd, torch::Tensor()),
        x_bd_(floats(batch * width_)),
        normal_bd_(x_bd_),
        logits_bv_(floats(batch * head_vd.size(0))) {
    for (std::size_t i = 0; i < mixers.size(); ++i)
      blocks_.emplace_back(transformer.blocks()[i], std::move(mixers[i]), batch);
    if (!transformer.final_norm().is_empty()) final_norm_.emplace(transformer.final_norm());
  }

  void resume(ModelState& state) override {
    state_ = &TransformerState::of(state);
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].resume(state_->mixer(i));
  }

  std::span<const float> step(std::span<const std::int32_t> tokens_b) override;

 private:
  std::int64_t batch_, context_, width_;
  torch::Tensor token_table_vd_, position_table_cd_;
  std::vector<BlockDecoder> blocks_;
  std::optional<NormDecoder> final_norm_;
  LinearDecoder head_;
  std::vector<float> x_bd_, normal_bd_, logits_bv_;
  TransformerState* state_ = nullptr;
};

std::span<const float> TransformerDecoder::step(std::span<const std::int32_t> tokens_b) {
  if (state_->length() >= context_)
    throw Error(ExitCode::failure,
                fmt::format("a sequence of {} tokens does not fit model.context {}", state_->length() + 1, context_));
  for (std::int64_t b = 0; b < batch_; ++b) {
    const auto token = tokens_b[static_cast<std::size_t>(b)];
    float* x_d = x_bd_.data() + b * width_;
    std::copy_n(token_table_vd_.const_data_ptr<float>() + token * width_, width_, x_d);
    if (!position_table_cd_.defined()) continue;
    const float* position_d = position_table_cd_.const_data_ptr<float>() + state_->length() * width_;
    std::transform(x_d, x_d + width_, position_d, x_d, std::plus<>());
  }
  for (auto& block : blocks_) block.step(x_bd_);
  state_->advance(1);
  const float* hidden_bd = x_bd_.data();
  if (final_norm_) {
    final_norm_->apply(x_bd_.data(), normal_bd_.data(), batch_);
    hidden_bd = normal_bd_.data();
  }
  head_.apply(hidden_bd, logits_bv_.data(), batch_);
  return logits_bv_;
}

}  // namespace

std::unique_ptr<Decoder> make_transformer_decoder(const TransformerImpl& transformer, const torch::Tensor& head_vd,
                                                  std::int64_t context, std::int64_t batch) {
  MixerDecoders mixers;
  for (const auto& block : transformer.blocks()) {
    mixers.push_back(block->mixer().decoder(batch, context));
    if (mixers.back() == nullptr) return nullptr;
  }
  return std::make_unique<TransformerDecoder>(transformer, std::move(mixers), head_vd, context, batch);
}

}  // namespace metaformer
