#include "model/neighbour_model.h"

#include "base/error.h"
#include "model/ids_at_distance.h"

namespace metaformer {

NeighbourModel::NeighbourModel(const TransformerConfig& config, const NeighbouringWordsConfig& task,
                               std::int64_t vocabulary)
    : config_(config),
      task_(task),
      region_(std::get<BagRegionConfig>(config.embedding.region).size),
      vocabulary_(vocabulary),
      transformer_(register_module("transformer", Transformer(config, vocabulary, /*causal=*/false))),
      words_(register_module("words", Embedding(2 * vocabulary, config.width + 1))),
      word_weight_v_(register_buffer("word_weight", torch::ones(vocabulary))) {}

void NeighbourModel::set_word_weights(const torch::Tensor& weight_v) {
  const torch::NoGradGuard no_grad;
  word_weight_v_.copy_(weight_v);
}

// Rows of the table of words, of the tokens at every distance on both sides of each region; -1: none.
torch::Tensor NeighbourModel::neighbours_bcj(const Batch& batch) const {
  std::vector<torch::Tensor> rows;
  const auto add = [&](std::int64_t distance, std::int64_t first_row) {
    const auto ids_bc = ids_at_distance(batch, distance);
    rows.push_back(torch::where(ids_bc < 0, -1, ids_bc + first_row));
  };
  for (std::int64_t distance = 1; distance <= task_.distance; ++distance) {
    add(1 - region_ - distance, 0);
    add(distance, vocabulary_);
  }
  return torch::stack(rows, 2);
}

torch::Tensor NeighbourModel::forward(const Batch& batch, ModelState* state, Pass& pass) {
  if (state != nullptr) throw Error(ExitCode::failure, "a model of neighbouring words has no state to continue from");
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  const auto u_bcm = torch::constant_pad_nd(transformer_->forward(batch, nullptr, pass), {0, 1}, 1);
  const auto& words_wm = words_->weight();
  const auto rows_bcj = neighbours_bcj(batch);
  const auto is_none_bcj = rows_bcj < 0;
  const auto weight_bcj =
      word_weight_v_.index_select(0, rows_bcj.clamp_min(0).flatten() % vocabulary_).view(rows_bcj.sizes());
  const auto words_bcjm = torch::embedding(words_wm, rows_bcj.clamp_min(0));
  const auto score_bcj = words_bcjm.matmul(u_bcm.unsqueeze(3)).squeeze(3);
  const auto of_neighbour_bcj = (score_bcj - 1).square() - task_.absent_weight * score_bcj.square();
  const auto of_all_bc = (u_bcm.matmul(words_wm.t().matmul(words_wm)) * u_bcm).sum(2);
  const auto of_neighbours_bc = (weight_bcj * of_neighbour_bcj).masked_fill(is_none_bcj, 0).sum(2);
  return (task_.absent_weight * of_all_bc + of_neighbours_bc).unsqueeze(2);
}

}  // namespace metaformer
