#include "model/token_model.h"

#include <algorithm>
#include <vector>

#include "attention/mixer_decoder.h"
#include "ops/functional.h"

namespace metaformer {

TokenModel::TokenModel(const TransformerConfig& config, std::int64_t vocabulary, Transformer transformer)
    : config_(config), vocabulary_(vocabulary), transformer_(register_module("transformer", std::move(transformer))) {
  if (!config.embedding.tie)
    head_ = register_module("head",
                            Linear(config.width, vocabulary, /*bias=*/false, Init::normal(), /*hidden_matrices=*/0));
}

torch::Tensor TokenModel::head_vd() const {
  const auto& table = head_table();
  return table.size(0) == vocabulary_ ? table : table.narrow(0, 0, vocabulary_);
}

// Not with LSH, which sorts all tokens again, nor with a memory, whose tokens move at the start of a segment.
bool Gpt::has_recordable_steps() const { return !remembers() && !config().any_mixer(chooses_by_whole_sequence); }

namespace {

// The decoder of a causal transformer on the CPU, in float32, with buffers that are allocated once.

class BlockDecoder {
 public:
  // `mixer`: the decoder of the block's mixer. `width`: that of the vectors.
  BlockDecoder(const Block& block, std::unique_ptr<MixerDecoder> mixer, std::int64_t batch, std::int64_t width,
               WeightPrecision precision)
      : block_(block),
        mixer_(std::move(mixer)),
        batch_(batch),
        normal_bd_(floats(batch * width)),
        branch_bd_(floats(batch * width)) {
    if (block->feed_forward().is_empty()) return;
    up_ = LinearDecoder(block->feed_forward()->up(), precision);
    down_ = LinearDecoder(block->feed_forward()->down(), precision);
    up_bu_ = floats(batch * up_.outputs());
    slope_bu_ = floats(batch * std::max(up_.outputs(), up_.inputs()));
    hidden_bh_ = floats(batch * down_.inputs());
  }

  void resume(MixerState& state) { mixer_->resume(state); }

  // Replaces the vectors of the newest tokens by the block's results.
  void step(std::vector<float>& x_bd) {
    apply(x_bd, block_->mixer_norms(), [&](const float* x, float* y) { mixer_->step(x, y); });
    if (block_->feed_forward().is_empty()) return;
    apply(x_bd, block_->feed_forward_norms(), [&](const float* x, float* y) { feed_forward(x, y); });
  }

 private:
  // As BlockImpl::apply.
  template <class Branch>
  void apply(std::vector<float>& x_bd, const BranchNorms& norms, Branch branch) {
    const bool is_post = block_->norm_position() == NormPosition::post;
    if (!is_post) norms.norm->normalise_rows(x_bd.data(), normal_bd_.data(), batch_);
    branch(is_post ? x_bd.data() : normal_bd_.data(), branch_bd_.data());
    if (!norms.output_norm.is_empty()) {
      norms.output_norm->normalise_rows(branch_bd_.data(), normal_bd_.data(), batch_);
      std::swap(branch_bd_, normal_bd_);
    }
    if (block_->has_residual())
      std::transform(x_bd.begin(), x_bd.end(), branch_bd_.begin(), branch_bd_.begin(), std::plus<>());
    if (is_post)
      norms.norm->normalise_rows(branch_bd_.data(), x_bd.data(), batch_);
    else
      std::swap(branch_bd_, x_bd);
  }

  void feed_forward(const float* x_bd, float* y_bd) {
    up_.apply(x_bd, up_bu_.data(), batch_);
    const auto& config = block_->feed_forward()->config();
    if (const auto* gated = std::get_if<GatedConfig>(&config)) {
      gate(function_of(gated->activation), up_bu_.data(), hidden_bh_.data(), slope_bu_.data(), batch_, down_.inputs());
      return down_.apply(hidden_bh_.data(), y_bd, batch_);
    }
    const auto& mlp = std::get<MlpConfig>(config);
    activate(function_of(mlp.activation), up_bu_.data(), hidden_bh_.data(), slope_bu_.data(), batch_ * down_.inputs());
    down_.apply(hidden_bh_.data(), y_bd, batch_);
    if (mlp.output_activation)
      activate(function_of(mlp.activation), y_bd, y_bd, slope_bu_.data(), batch_ * down_.outputs());
  }

  Block block_;
  std::unique_ptr<MixerDecoder> mixer_;
  std::int64_t batch_;
  LinearDecoder up_, down_;
  std::vector<float> normal_bd_, branch_bd_;
  std::vector<float> up_bu_, slope_bu_;  // outputs u of the up layer, and slopes that nothing reads
  std::vector<float> hidden_bh_;
};

class TransformerDecoder : public Decoder {
 public:
  TransformerDecoder(const TransformerImpl& transformer, std::vector<BlockDecoder> blocks, const torch::Tensor& head_vd,
                     std::int64_t batch, WeightPrecision precision)
      : batch_(batch),
        context_(transformer.config().context),
        width_(head_vd.size(1)),
        token_table_vd_(transformer.token_table_vd()),
        position_table_cd_(transformer.position_table_cd(context_)),
        embedding_factor_(static_cast<float>(transformer.embedding_factor())),
        blocks_(std::move(blocks)),
        final_norm_(transformer.final_norm()),
        head_(head_vd, torch::Tensor(), precision),
        x_bd_(floats(batch * width_)),
        normal_bd_(x_bd_),
        logits_bv_(floats(batch * head_vd.size(0))) {}

  void resume(ModelState& state) override {
    state_ = &state_as<TransformerState>(state);
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].resume(state_->mixer(i));
  }

  std::span<const float> step(std::span<const std::int32_t> tokens_b) override {
    if (state_->prepare(1, context_)) resume(*state_);
    embed_rows(token_table_vd_, tokens_b, embedding_factor_, x_bd_.data());
    for (std::int64_t b = 0; b < batch_ && position_table_cd_.defined(); ++b) {
      const float* position_d = position_table_cd_.const_data_ptr<float>() + state_->place() * width_;
      float* x_d = x_bd_.data() + b * width_;
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

}  // namespace

std::unique_ptr<Decoder> Gpt::decoder(std::int64_t batch, WeightPrecision precision) const {
  // Decoders support neither windows nor two streams.
  if (!can_decode(*this) || config().same_length || config().blocks == BlockKind::reversible) return nullptr;
  std::vector<BlockDecoder> blocks;
  for (const auto& block : transformer().blocks()) {
    if (block->has_convolution()) return nullptr;
    auto mixer = block->mixer().decoder(batch, config().context + config().memory, precision);
    if (mixer == nullptr) return nullptr;
    blocks.emplace_back(block, std::move(mixer), batch, config().width, precision);
  }
  return std::make_unique<TransformerDecoder>(transformer(), std::move(blocks), head_vd(), batch, precision);
}

torch::Tensor MaskedLanguageModel::hidden(const Batch& batch, ModelState* state, Pass& pass) {
  if (state != nullptr) throw Error(ExitCode::failure, "a masked language model has no state to continue from");
  return wanted_rows(transformer().forward(batch, nullptr, pass), batch);
}

Compressor::Compressor(const TransformerConfig& config, std::int64_t vocabulary)
    : TokenModel(config, vocabulary, Transformer(config, vocabulary, /*causal=*/true)),
      sinusoids_cd_([width = config.width](std::int64_t tokens) {
        return sinusoid_table_cd(SinusoidalPositionsConfig{}, tokens, width);
      }) {
  for (const char* number : {"0", "1"}) {
    norms_.push_back(
        register_module(std::string("decoder_norm_") + number, Norm(config.norm, config.width, config.bias)));
    layers_.push_back(
        register_module(std::string("decoder_") + number, Linear(config.width, config.width, /*bias=*/true)));
  }
}

torch::Tensor Compressor::hidden(const Batch& batch, ModelState* state, Pass& pass) {
  if (state != nullptr) throw Error(ExitCode::failure, "a model of task compression has no state to continue from");
  const auto read_bcd = transformer().forward(batch, nullptr, pass);
  const auto c = read_bcd.size(1);
  const auto places_cd = sinusoids_cd_.of(std::max(c, config().context), read_bcd.device(), read_bcd.scalar_type());
  auto x_bcd = read_bcd.narrow(1, c - 1, 1) + places_cd.narrow(0, 0, c);
  for (std::size_t i = 0; i < layers_.size(); ++i) x_bcd = torch::gelu(layers_[i](norms_[i](x_bcd)));
  return wanted_rows(x_bcd, batch);
}

void EncoderDecoderState::select(const torch::Tensor& rows_b) {
  TransformerState::select(rows_b);
  source_bsd = source_bsd.index_select(0, rows_b);
  if (segments_bs.defined()) segments_bs = segments_bs.index_select(0, rows_b);
  for (auto& mixer : of_source) mixer.select(rows_b);
}

EncoderDecoder::EncoderDecoder(const EncoderDecoderConfig& config, std::int64_t vocabulary)
    : TokenModel(config, vocabulary + 1,
                 Transformer(config, vocabulary + 1, /*causal=*/true, Embedding(nullptr), &config)),
      encoder_(register_module(
          "encoder", Transformer(config.encoder_blocks(), vocabulary + 1, /*causal=*/false,
                                 config.shared_embedding ? transformer().token_embedding() : Embedding(nullptr)))) {}

torch::Tensor EncoderDecoder::encode(const Batch& batch, Pass& pass) {
  Batch source;
  source.ids_bc = batch.source_ids_bs;
  source.segments_bc = batch.source_segments_bs;
  source.first_row = batch.first_row;
  return encoder_->forward(source, nullptr, pass);
}

// Every token of the target sees all of the source except its padding.
static Visibility visibility_of(const torch::Tensor& ids_bc, const torch::Tensor& segments_bs) {
  if (!segments_bs.defined()) return {};
  return {.query_segment_bc = torch::zeros_like(ids_bc), .key_segment_be = segments_bs};
}

torch::Tensor EncoderDecoder::hidden(const Batch& batch, ModelState* given, Pass& pass) {
  auto* state = given == nullptr ? nullptr : &state_as<EncoderDecoderState>(*given);
  const bool is_read = state != nullptr && state->source_bsd.defined();
  const auto source_bsd = is_read ? state->source_bsd : encode(batch, pass);
  const auto segments_bs = is_read ? state->segments_bs : batch.source_segments_bs;
  if (state != nullptr && !is_read) state->set_source(source_bsd, segments_bs);
  const TransformerImpl::SourceView view{
      .source = {.context_bsd = source_bsd, .visibility = visibility_of(batch.ids_bc, segments_bs)},
      .states = state == nullptr ? nullptr : &state->of_source};
  return transformer().forward(batch, state, pass, &view);
}

// Uses a view, because autocast then casts the table for each slice of a batch. Slices would share the cast of the
// table itself, and autograd would add the table's three gradients (source, target, head) in an order that depends on
// which thread made the cast.
torch::Tensor EncoderDecoder::logits_of(const torch::Tensor& hidden) const {
  const auto table_vd = head_vd();
  return linear_product(hidden, table_vd.view_as(table_vd), {});
}

std::unique_ptr<ModelState> EncoderDecoder::new_state(std::int64_t batch, std::int64_t capacity) const {
  return std::make_unique<EncoderDecoderState>(config().layers, batch, capacity, head_weights().front().device());
}

}  // namespace metaformer
