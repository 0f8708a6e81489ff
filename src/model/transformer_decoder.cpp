#include "model/transformer_decoder.h"

#include <algorithm>

#include "ops/functional.h"

namespace metaformer {

namespace {

void add(const std::vector<float>& from, std::vector<float>& to) {
  std::transform(from.begin(), from.end(), to.begin(), to.begin(), std::plus<>());
}

}  // namespace

BlockDecoder::BlockDecoder(const Block& block, std::unique_ptr<MixerDecoder> mixer, std::int64_t batch)
    : batch_(batch),
      norm_position_(block->norm_position()),
      has_residual_(block->has_residual()),
      mixer_norms_(block->mixer_norms()),
      feed_forward_norms_(block->feed_forward_norms()),
      mixer_(std::move(mixer)),
      feed_forward_(block->feed_forward()->config()),
      up_(block->feed_forward()->up()),
      down_(block->feed_forward()->down()),
      normal_bd_(floats(batch * up_.inputs())),
      branch_bd_(floats(batch * up_.inputs())),
      up_bu_(floats(batch * up_.outputs())),
      slope_bu_(floats(batch * std::max(up_.outputs(), up_.inputs()))),
      hidden_bh_(floats(batch * down_.inputs())) {}

template <class Branch>
void BlockDecoder::apply(std::vector<float>& x_bd, const BranchNorms& norms, Branch branch) {
  const bool is_post = norm_position_ == NormPosition::post;
  if (!is_post) norms.norm->normalise_rows(x_bd.data(), normal_bd_.data(), batch_);
  branch(is_post ? x_bd.data() : normal_bd_.data(), branch_bd_.data());
  if (!norms.output_norm.is_empty()) {
    norms.output_norm->normalise_rows(branch_bd_.data(), normal_bd_.data(), batch_);
    std::swap(branch_bd_, normal_bd_);
  }
  if (has_residual_) add(x_bd, branch_bd_);
  if (is_post)
    norms.norm->normalise_rows(branch_bd_.data(), x_bd.data(), batch_);
  else
    std::swap(branch_bd_, x_bd);
}

void BlockDecoder::feed_forward(const float* x_bd, float* y_bd) {
  up_.apply(x_bd, up_bu_.data(), batch_);
  if (const auto* gated = std::get_if<GatedConfig>(&feed_forward_)) {
    gate(function_of(gated->activation), up_bu_.data(), hidden_bh_.data(), slope_bu_.data(), batch_, down_.inputs());
    return down_.apply(hidden_bh_.data(), y_bd, batch_);
  }
  const auto& mlp = std::get<MlpConfig>(feed_forward_);
  activate(function_of(mlp.activation), up_bu_.data(), hidden_bh_.data(), slope_bu_.data(), batch_ * down_.inputs());
  down_.apply(hidden_bh_.data(), y_bd, batch_);
  if (mlp.output_activation)
    activate(function_of(mlp.activation), y_bd, y_bd, slope_bu_.data(), batch_ * down_.outputs());
}

void BlockDecoder::step(std::vector<float>& x_bd) {
  apply(x_bd, mixer_norms_, [&](const float* x, float* y) { mixer_->step(x, y); });
  apply(x_bd, feed_forward_norms_, [&](const float* x, float* y) { feed_forward(x, y); });
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
        position_table_cd_(transformer.position_table_cd(context)),
        embedding_factor_(static_cast<float>(transformer.embedding_factor())),
        final_norm_(transformer.final_norm()),
        head_(head_vd, torch::Tensor()),
        x_bd_(floats(batch * width_)),
        normal_bd_(x_bd_),
        logits_bv_(floats(batch * head_vd.size(0))) {
    for (std::size_t i = 0; i < mixers.size(); ++i)
      blocks_.emplace_back(transformer.blocks()[i], std::move(mixers[i]), batch);
  }

  void resume(ModelState& state) override {
    state_ = &state_as<TransformerState>(state);
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].resume(state_->mixer(i));
  }

  std::span<const float> step(std::span<const std::int32_t> tokens_b) override;

 private:
  std::int64_t batch_, context_, width_;
  torch::Tensor token_table_vd_, position_table_cd_;
  float embedding_factor_;
  std::vector<BlockDecoder> blocks_;
  Norm final_norm_;  // may be empty
  LinearDecoder head_;
  std::vector<float> x_bd_, normal_bd_, logits_bv_;
  TransformerState* state_ = nullptr;
};

std::span<const float> TransformerDecoder::step(std::span<const std::int32_t> tokens_b) {
  if (state_->prepare(1, context_)) resume(*state_);
  for (std::int64_t b = 0; b < batch_; ++b) {
    const auto token = tokens_b[static_cast<std::size_t>(b)];
    float* x_d = x_bd_.data() + b * width_;
    const float* row_d = token_table_vd_.const_data_ptr<float>() + token * width_;
    std::transform(row_d, row_d + width_, x_d, [&](float x) { return x * embedding_factor_; });
    if (!position_table_cd_.defined()) continue;
    const float* position_d = position_table_cd_.const_data_ptr<float>() + state_->place() * width_;
    std::transform(x_d, x_d + width_, position_d, x_d, std::plus<>());
  }
  for (auto& block : blocks_) block.step(x_bd_);
  state_->advance(1);
  const float* hidden_bd = x_bd_.data();
  if (!final_norm_.is_empty()) {
    final_norm_->normalise_rows(x_bd_.data(), normal_bd_.data(), batch_);
    hidden_bd = normal_bd_.data();
  }
  head_.apply(hidden_bd, logits_bv_.data(), batch_);
  return logits_bv_;
}

}  // namespace

std::unique_ptr<Decoder> make_transformer_decoder(const TransformerImpl& transformer, const torch::Tensor& head_vd,
                                                  std::int64_t batch) {
  // No decoder knows a window, or two streams.
  if (transformer.config().same_length || transformer.config().blocks == BlockKind::reversible) return nullptr;
  const auto context = transformer.config().context, capacity = context + transformer.config().memory;
  MixerDecoders mixers;
  for (const auto& block : transformer.blocks()) {
    mixers.push_back(block->mixer().decoder(batch, capacity));
    if (mixers.back() == nullptr) return nullptr;
  }
  return std::make_unique<TransformerDecoder>(transformer, std::move(mixers), head_vd, context, batch);
}

}  // namespace metaformer
