#include "model/labelled_texts.h"

#include <limits>

namespace metaformer {

namespace {

torch::Tensor widened(const torch::Tensor& x) {
  return x.to(x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
}

}  // namespace

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
