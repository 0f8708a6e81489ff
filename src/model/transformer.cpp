#include "model/transformer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "model/transformer_state.h"
#include "ops/dropout.h"

namespace metaformer {

namespace {

torch::Tensor scaled(Embedding& table, const torch::Tensor& scale_v1, const torch::Tensor& ids_bc) {
  auto x_bcd = table(ids_bc);
  return scale_v1.defined() ? x_bcd * torch::embedding(scale_v1, ids_bc) : x_bcd;
}

}  // namespace

torch::Tensor ngram_buckets(const torch::Tensor& ids_bc, std::int64_t n, std::int64_t buckets,
                            const torch::Tensor& segments_bc) {
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
    const auto shifted = [&](const torch::Tensor& x_bc) {
      return torch::constant_pad_nd(x_bc, {back, 0}, -1).narrow(1, 0, length);
    };
    auto earlier_bc = shifted(ids_bc);
    if (segments_bc.defined()) earlier_bc = earlier_bc.masked_fill(shifted(segments_bc) != segments_bc, -1);
    hash_bc = scatter(scatter(hash_bc + earlier_bc, first_factor, 30), second_factor, 29);
  }
  return hash_bc.remainder(buckets);
}

TransformerImpl::TransformerImpl(const TransformerConfig& config, std::int64_t vocabulary, bool causal)
    : config_(config),
      causal_(causal),
      token_embedding_(register_module("token_embedding", Embedding(vocabulary, config.width, config.embedding.std))) {
  if (is<LearnedPositionsConfig>(config.positions))
    position_embedding_ = register_module("position_embedding", Embedding(config.context, config.width));
  if (config.embedding.ngrams.order > 1)
    ngram_embedding_ = register_module("ngram_embedding",
                                       Embedding(config.embedding.ngrams.buckets, config.width, config.embedding.std));
  if (config.embedding.scale != EmbeddingScale::none) {
    token_scale_v1_ = register_buffer("token_scale", torch::ones({vocabulary, 1}));
    if (!ngram_embedding_.is_empty())
      ngram_scale_g1_ = register_buffer("ngram_scale", torch::ones({config.embedding.ngrams.buckets, 1}));
  }
  auto blocks = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks_.emplace_back(config);
    blocks->push_back(blocks_.back());
  }
  if (has_final_norm(config.norm)) final_norm_ = register_module("final_norm", LayerNorm(config.width, config.bias));
}

torch::Tensor TransformerImpl::position_table_cd() const {
  return position_embedding_.is_empty() ? torch::Tensor() : position_embedding_->weight();
}

torch::Tensor TransformerImpl::positions_of(const Batch& batch, std::int64_t first_position) {
  if (batch.is_packed()) return position_embedding_(positions_in_segments(batch.segments_bc));
  return position_embedding_->weight().narrow(0, first_position, batch.ids_bc.size(1));
}

void TransformerImpl::scale_embeddings(const torch::Tensor& tokens_v, const torch::Tensor& ngrams_g) {
  const torch::NoGradGuard no_grad;
  token_scale_v1_.narrow(0, 0, tokens_v.size(0)).copy_(tokens_v.unsqueeze(1));
  if (ngram_scale_g1_.defined()) ngram_scale_g1_.copy_(ngrams_g.unsqueeze(1));
}

torch::Tensor TransformerImpl::embed(const Batch& batch, std::int64_t first_position, Pass& pass) {
  auto x_bcd = scaled(token_embedding_, token_scale_v1_, batch.ids_bc);
  for (std::int64_t n = 2; n <= config_.embedding.ngrams.order; ++n) {
    const auto buckets_bc = ngram_buckets(batch.ids_bc, n, config_.embedding.ngrams.buckets,
                                          batch.is_packed() ? batch.segments_bc : torch::Tensor());
    x_bcd = x_bcd + scaled(ngram_embedding_, ngram_scale_g1_, buckets_bc);
  }
  if (!position_embedding_.is_empty()) x_bcd = x_bcd + positions_of(batch, first_position);
  if (pass.training && config_.embedding.dropout > 0)
    x_bcd = x_bcd * dropout(torch::ones_like(x_bcd.narrow(1, 0, 1)), config_.embedding.dropout, pass);
  return dropout(x_bcd, config_.dropout, pass);
}

std::unique_ptr<ModelState> TransformerImpl::new_state(std::int64_t batch, std::int64_t capacity) const {
  return std::make_unique<TransformerState>(config_.layers, batch, capacity, token_table_vd().device());
}

torch::Tensor TransformerImpl::forward(const Batch& batch, ModelState* given, Pass& pass) {
  auto* state = given != nullptr ? &TransformerState::of(*given) : nullptr;
  const auto length = batch.ids_bc.size(1);
  const auto seen = state != nullptr ? state->length() : 0;
  if (seen + length > config_.context)
    throw Error(ExitCode::failure,
                fmt::format("a sequence of {} tokens does not fit model.context {}", seen + length, config_.context));
  const auto visibility = self_visibility(causal_, batch.segments_bc);
  auto x_bcd = embed(batch, seen, pass);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x_bcd = blocks_[i]->forward(x_bcd, visibility, state != nullptr ? &state->mixer(i) : nullptr, pass);
  if (state != nullptr) state->advance(length);
  return final_norm_.is_empty() ? x_bcd : final_norm_(x_bcd);
}

}  // namespace metaformer
