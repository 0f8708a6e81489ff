#include "model/batch.h"

#include <algorithm>
#include <limits>

namespace metaformer {

namespace {

torch::Tensor widened(const torch::Tensor& x) {
  return x.to(x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
}

// Of the rows without what is padding in all of them.
std::int64_t needed_length(const torch::Tensor& segments_bc) {
  constexpr std::int64_t step = 8;  // libraries that compile a kernel for a shape find it again
  const auto used = (segments_bc >= 0).any(0).nonzero();
  const auto length = used.numel() == 0 ? 1 : used.max().item<std::int64_t>() + 1;
  return std::min((length + step - 1) / step * step, segments_bc.size(1));
}

void take_labels(Batch& part, std::int64_t first, std::int64_t count) {
  if (!part.is_packed()) {
    part.labels_l = part.labels_l.narrow(0, first, count);
    return;
  }
  const auto rows_l = part.label_rows_l2.select(1, 0);
  const auto own_l = ((rows_l >= first) & (rows_l < first + count)).nonzero().select(1, 0);
  part.labels_l = part.labels_l.index_select(0, own_l);
  part.label_rows_l2 = part.label_rows_l2.index_select(0, own_l) - torch::tensor({first, std::int64_t{0}});
}

// The places in rows first ... first + count - 1, which are then rows of `length`.
torch::Tensor places_in(const Batch& batch, std::int64_t first, std::int64_t count, std::int64_t length) {
  const auto width = batch.ids_bc.size(1);
  const auto place_t = batch.places_t - first * width;
  const auto own_t = place_t.masked_select((place_t >= 0) & (place_t < count * width));
  const auto row_t = own_t.div(width, "floor");
  return padded_places(row_t * length + own_t - row_t * width);
}

}  // namespace

torch::Tensor padded_places(const torch::Tensor& places_t) {
  constexpr std::int64_t step = 32;
  const auto count = places_t.size(0);
  return torch::constant_pad_nd(places_t, {0, (count + step - 1) / step * step - count}, -1);
}

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

Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch part = batch;
  part.first_row += first;
  for (auto* tensor : {&part.ids_bc, &part.targets_bc, &part.segments_bc, &part.target_weights_bc,
                       &part.target_bytes_bc, &part.source_ids_bs, &part.source_segments_bs})
    if (tensor->defined()) *tensor = tensor->narrow(0, first, count);
  if (part.source_segments_bs.defined()) {
    const auto needed = needed_length(part.source_segments_bs);
    part.source_ids_bs = part.source_ids_bs.narrow(1, 0, needed);
    part.source_segments_bs = part.source_segments_bs.narrow(1, 0, needed);
  }
  if (part.labels_l.defined()) take_labels(part, first, count);
  const auto length = part.segments_bc.defined() ? needed_length(part.segments_bc) : part.ids_bc.size(1);
  if (part.places_t.defined()) part.places_t = places_in(batch, first, count, length);
  if (!part.segments_bc.defined()) return part;
  for (auto* tensor :
       {&part.ids_bc, &part.targets_bc, &part.segments_bc, &part.target_weights_bc, &part.target_bytes_bc})
    if (tensor->defined()) *tensor = tensor->narrow(1, 0, length);
  return part;
}

torch::Tensor rows_of_texts(const torch::Tensor& x, const Batch& batch) {
  return batch.is_packed() ? x.index_select(0, batch.label_rows_l2.select(1, 0)) : x;
}

torch::Tensor tokens_of_texts_lc(const Batch& batch) {
  if (!batch.is_packed()) return batch.segments_bc >= 0;
  return rows_of_texts(batch.segments_bc, batch) == batch.label_rows_l2.narrow(1, 1, 1);
}

torch::Tensor mean_over_tokens(const torch::Tensor& x_bcd, const Batch& batch) {
  const auto x_lcd = rows_of_texts(widened(x_bcd), batch);
  if (!batch.segments_bc.defined()) return x_lcd.mean(1);
  const auto is_own_lc1 = tokens_of_texts_lc(batch).unsqueeze(2);
  return x_lcd.masked_fill(is_own_lc1.logical_not(), 0).sum(1) / is_own_lc1.sum(1).clamp_min(1);
}

torch::Tensor greatest_over_tokens(const torch::Tensor& x_bcd, const Batch& batch) {
  const auto x_lcd = rows_of_texts(widened(x_bcd), batch);
  if (!batch.segments_bc.defined()) return std::get<0>(x_lcd.max(1));
  const auto is_own_lc1 = tokens_of_texts_lc(batch).unsqueeze(2);
  const auto greatest_ld =
      std::get<0>(x_lcd.masked_fill(is_own_lc1.logical_not(), -std::numeric_limits<double>::infinity()).max(1));
  return greatest_ld.masked_fill(is_own_lc1.any(1).logical_not(), 0);
}

torch::Tensor first_vectors(const torch::Tensor& x_bcd, const Batch& batch) {
  if (!batch.is_packed()) return x_bcd.select(1, 0);
  const auto is_own_lc = tokens_of_texts_lc(batch);
  const auto length = is_own_lc.size(1);
  const auto place_lc = torch::where(is_own_lc, torch::arange(length, batch.ids_bc.options()), length);
  return x_bcd.index({batch.label_rows_l2.select(1, 0), place_lc.amin(1)});
}

}  // namespace metaformer
