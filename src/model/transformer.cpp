#include "model/transformer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ops/dropout.h"

namespace metaformer {

namespace {

torch::Tensor scaled(torch::nn::Embedding& table, const torch::Tensor& scale_v1, const torch::Tensor& ids_bc) {
  auto x_bcd = table(ids_bc);
  return scale_v1.defined() ? x_bcd * torch::embedding(scale_v1, ids_bc) : x_bcd;
}

}  // namespace

torch::Tensor ngram_buckets(const torch::Tensor& ids_bc, std::int64_t n, std::int64_t buckets) {
  // Two rounds of splitmix64 (Steele, Lea, Flood 2014) for every token.
  constexpr auto first_factor = static_cast<std::int64_t>(0xbf58476d1ce4e5b9ULL);
  constexpr auto second_factor = static_cast<std::int64_t>(0x94d049bb133111ebULL);
  const auto scatter = [](const torch::Tensor& x, std::int64_t factor, std::int64_t shift) {
    const auto product = x * factor;
    return product.bitwise_xor(product.bitwise_right_shift(shift));
  };
  const auto length = ids_bc.size(1);
  auto hash_bc = torch::full_like(ids_bc, n);
  for (std::int64_t back = n - 1; back >= 0; --back) {
    // The token `back` places earlier; -1 before the first one.
    const auto earlier_bc = torch::constant_pad_nd(ids_bc, {back, 0}, -1).narrow(1, 0, length);
    hash_bc = scatter(scatter(hash_bc + earlier_bc, first_factor, 30), second_factor, 29);
  }
  return hash_bc.remainder(buckets);
}

TransformerImpl::TransformerImpl(const ModelConfig& config, std::int64_t vocabulary, bool causal)
    : config_(config),
      causal_(causal),
      token_embedding_(register_module("token_embedding", torch::nn::Embedding(vocabulary, config.width))) {
  if (config.positions == PositionKind::learned)
    position_embedding_ = register_module("position_embedding", torch::nn::Embedding(config.context, config.width));
  if (config.ngram_embedding.order > 1)
    ngram_embedding_ =
        register_module("ngram_embedding", torch::nn::Embedding(config.ngram_embedding.buckets, config.width));
  if (config.embedding_scale != EmbeddingScale::none) {
    token_scale_v1_ = register_buffer("token_scale", torch::ones({vocabulary, 1}));
    if (!ngram_embedding_.is_empty())
      ngram_scale_g1_ = register_buffer("ngram_scale", torch::ones({config.ngram_embedding.buckets, 1}));
  }
  auto blocks = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks_.emplace_back(config);
    blocks->push_back(blocks_.back());
  }
  if (config.norm.position == NormPosition::pre && config.norm.final)
    final_norm_ = register_module("final_norm", LayerNorm(config.width, config.bias));
}

torch::Tensor TransformerImpl::position_table_cd() const {
  return position_embedding_.is_empty() ? torch::Tensor() : position_embedding_->weight;
}

torch::Tensor TransformerImpl::positions_of(const Batch& batch, std::int64_t first_position) {
  if (batch.positions_bc.defined()) return position_embedding_(batch.positions_bc);
  return position_embedding_->weight.narrow(0, first_position, batch.ids_bc.size(1));
}

void TransformerImpl::scale_embeddings(const torch::Tensor& tokens_v, const torch::Tensor& ngrams_g) {
  const torch::NoGradGuard no_grad;
  token_scale_v1_.narrow(0, 0, tokens_v.size(0)).copy_(tokens_v.unsqueeze(1));
  if (ngram_scale_g1_.defined()) ngram_scale_g1_.copy_(ngrams_g.unsqueeze(1));
}

torch::Tensor TransformerImpl::embed(const Batch& batch, std::int64_t first_position) {
  auto x_bcd = scaled(token_embedding_, token_scale_v1_, batch.ids_bc);
  for (std::int64_t n = 2; n <= config_.ngram_embedding.order; ++n) {
    const auto buckets_bc = ngram_buckets(batch.ids_bc, n, config_.ngram_embedding.buckets);
    x_bcd = x_bcd + scaled(ngram_embedding_, ngram_scale_g1_, buckets_bc);
  }
  if (!position_embedding_.is_empty()) x_bcd = x_bcd + positions_of(batch, first_position);
  if (!is_training()) return x_bcd;
  if (config_.embedding_dropout > 0)
    x_bcd = x_bcd * dropout(torch::ones_like(x_bcd.narrow(1, 0, 1)), config_.embedding_dropout);
  return dropout(x_bcd, config_.dropout);
}

torch::Tensor TransformerImpl::forward(const Batch& batch, ModelState* state) {
  const auto length = batch.ids_bc.size(1);
  const auto seen = state != nullptr ? state->length : 0;
  if (seen + length > config_.context)
    throw Error(ExitCode::failure,
                fmt::format("a sequence of {} tokens does not fit model.context {}", seen + length, config_.context));
  const auto visibility = self_visibility(causal_, batch.segments_bc);
  auto x_bcd = embed(batch, seen);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x_bcd = blocks_[i]->forward(x_bcd, visibility, state != nullptr ? &state->mixers[i] : nullptr);
  if (state != nullptr) state->length += length;
  return final_norm_.is_empty() ? x_bcd : final_norm_(x_bcd);
}

}  // namespace metaformer
