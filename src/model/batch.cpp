#include "model/batch.h"

namespace metaformer {

torch::Tensor wanted_targets_t(const Batch& batch) {
  const auto targets_t = batch.targets_bc.flatten();
  if (!batch.places_t.defined()) return targets_t;
  return targets_t.index_select(0, batch.places_t.clamp_min(0)).masked_fill(batch.places_t < 0, -1);
}

torch::Tensor wanted_weights_t(const Batch& batch) {
  if (!batch.target_weights_bc.defined()) return {};
  const auto weights_t = batch.target_weights_bc.flatten();
  return batch.places_t.defined() ? weights_t.index_select(0, batch.places_t.clamp_min(0)) : weights_t;
}

torch::Tensor rows_of_targets_t(const Batch& batch) {
  const auto rows = batch.ids_bc.size(0), length = batch.targets_bc.size(1);
  if (batch.places_t.defined()) return batch.places_t.clamp_min(0).div(length, "floor");
  return torch::arange(rows, batch.ids_bc.options()).repeat_interleave(length);
}

torch::Tensor wanted_rows(const torch::Tensor& x_bcd, const Batch& batch) {
  return batch.places_t.defined() ? x_bcd.flatten(0, 1).index_select(0, batch.places_t.clamp_min(0)) : x_bcd;
}

torch::Tensor rows_of_texts(const torch::Tensor& x, const Batch& batch) {
  return batch.is_packed() ? x.index_select(0, batch.label_rows_l2.select(1, 0)) : x;
}

torch::Tensor tokens_of_texts_lc(const Batch& batch) {
  if (!batch.is_packed()) return batch.segments_bc >= 0;
  return rows_of_texts(batch.segments_bc, batch) == batch.label_rows_l2.narrow(1, 1, 1);
}

}  // namespace metaformer
