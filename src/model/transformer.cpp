#include "model/transformer.h"

#include <fmt/format.h>

#include "core/error.h"

namespace metaformer {

TransformerImpl::TransformerImpl(const ModelConfig& config, std::int64_t vocabulary, bool causal)
    : config_(config),
      causal_(causal),
      token_embedding_(register_module("token_embedding", torch::nn::Embedding(vocabulary, config.width))),
      position_embedding_(register_module("position_embedding", torch::nn::Embedding(config.context, config.width))) {
  auto blocks = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    blocks_.emplace_back(config);
    blocks->push_back(blocks_.back());
  }
  if (config.norm.position == NormPosition::pre)
    final_norm_ = register_module("final_norm", LayerNorm(config.width, config.bias));
}

torch::Tensor TransformerImpl::embed(const Batch& batch, std::int64_t first_position) {
  const auto length = batch.ids_bc.size(1);
  const auto position = batch.positions_bc.defined() ? position_embedding_(batch.positions_bc)
                                                     : position_embedding_->weight.narrow(0, first_position, length);
  const auto x_bcd = token_embedding_(batch.ids_bc) + position;
  return is_training() && config_.dropout > 0 ? torch::dropout(x_bcd, config_.dropout, true) : x_bcd;
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
