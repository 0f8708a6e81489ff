#include "tasks/batches.h"

#include <algorithm>

#include "base/error.h"
#include "ops/functional.h"
#include "ops/fused_cross_entropy.h"

namespace metaformer {

namespace {

// Appends -1 until the count is a multiple of 32, so that batches have few shapes.
torch::Tensor padded_places(const torch::Tensor& places_t) {
  constexpr std::int64_t step = 32;
  const auto count = places_t.size(0);
  return torch::constant_pad_nd(places_t, {0, (count + step - 1) / step * step - count}, -1);
}

torch::Tensor to_weight(std::int64_t targets, torch::Device device) {
  return torch::full({}, static_cast<double>(targets), torch::TensorOptions().dtype(torch::kDouble).device(device));
}

// A length rounded up to a multiple of 8, or `most`. Libraries that compile a kernel for each shape can then reuse it.
std::int64_t padded_length(std::int64_t length, std::int64_t most) {
  constexpr std::int64_t step = 8;
  return std::min((length + step - 1) / step * step, most);
}

// The padded length of the longest row.
std::int64_t needed_length(const torch::Tensor& segments_bc) {
  const auto used = (segments_bc >= 0).any(0).nonzero();
  const auto length = used.numel() == 0 ? 1 : used.max().item<std::int64_t>() + 1;
  return padded_length(length, segments_bc.size(1));
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

// The places within the first `length` tokens of rows first ... first + count - 1, as places in rows of that length.
torch::Tensor places_in(const Batch& batch, std::int64_t first, std::int64_t count, std::int64_t length) {
  const auto width = batch.ids_bc.size(1);
  const auto place_t = batch.places_t - first * width, column_t = place_t.remainder(width);
  const auto is_own_t = (place_t >= 0) & (place_t < count * width) & (column_t < length);
  return padded_places((place_t.div(width, "floor") * length + column_t).masked_select(is_own_t));
}

}  // namespace

torch::Tensor to_tensor(const std::vector<std::int64_t>& values, std::int64_t rows, torch::Device device) {
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  return torch::tensor(at::ArrayRef<std::int64_t>(values), torch::kLong).view({rows, columns}).to(device);
}

Batch to_batch(const TokenRows& rows, torch::Device device) {
  Batch batch;
  batch.ids_bc = to_tensor(rows.ids, rows.rows, device);
  batch.targets_bc = to_tensor(rows.targets, rows.rows, device);
  if (!rows.segments.empty()) batch.segments_bc = to_tensor(rows.segments, rows.rows, device);
  batch.restarts = rows.restarts;
  if (!rows.places.empty())
    batch.places_t = padded_places(torch::tensor(at::ArrayRef<std::int64_t>(rows.places))).to(device);
  if (!rows.target_weights.empty())
    batch.target_weights_bc = torch::tensor(at::ArrayRef<float>(rows.target_weights)).view({rows.rows, -1}).to(device);
  if (!rows.target_bytes.empty()) batch.target_bytes_bc = to_tensor(rows.target_bytes, rows.rows, device);
  batch.weight = to_weight(rows.target_weights.empty() ? rows.target_count : rows.sequences, device);
  return batch;
}

Batch to_batch(const LabelledRows& rows, torch::Device device, std::int64_t context) {
  Batch batch;
  batch.ids_bc = to_tensor(rows.ids, rows.rows, device);
  if (!rows.segments.empty()) {
    const auto length = padded_length(rows.length, context);
    const auto further = std::max<std::int64_t>(0, length - rows.length);
    batch.ids_bc = torch::constant_pad_nd(batch.ids_bc, {0, further}, 0);
    batch.segments_bc = torch::constant_pad_nd(to_tensor(rows.segments, rows.rows, device), {0, further}, -1);
  }
  const bool is_packed = !rows.label_rows.empty();
  const auto texts = is_packed ? std::ssize(rows.label_rows) / 2 : rows.rows;
  if (!rows.labels.empty()) batch.labels_l = to_tensor(rows.labels, texts, device).squeeze(1);
  if (is_packed) batch.label_rows_l2 = to_tensor(rows.label_rows, texts, device);
  batch.weight = to_weight(texts, device);
  return batch;
}

Batch to_batch(const PairRows& rows, torch::Device device, std::int64_t context) {
  auto batch = to_batch(rows.target, device);
  const auto source = to_batch(rows.source, device, context);
  batch.source_ids_bs = source.ids_bc;
  batch.source_segments_bs = source.segments_bc;
  return batch;
}

Batch cut_windows(const torch::Tensor& tokens_t, const std::vector<std::int64_t>& starts, std::int64_t length,
                  const torch::Tensor& segments_t) {
  const auto rows = static_cast<std::int64_t>(starts.size());
  const auto starts_b1 = torch::tensor(at::ArrayRef<std::int64_t>(starts)).to(tokens_t.device(), /*non_blocking=*/true);
  const auto place = starts_b1.unsqueeze(1) + torch::arange(length + 1, starts_b1.options());
  const auto cut = [&](const torch::Tensor& x_t) {
    return x_t.index_select(0, place.flatten()).to(torch::kLong).view({rows, length + 1});
  };
  const auto window = cut(tokens_t);
  Batch batch;
  batch.ids_bc = window.narrow(1, 0, length).contiguous();
  batch.targets_bc = window.narrow(1, 1, length).contiguous();
  if (segments_t.defined()) batch.segments_bc = cut(segments_t).narrow(1, 0, length).contiguous();
  batch.weight = to_weight(rows * length, tokens_t.device());
  return batch;
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

Batch beginning_of(const Batch& batch, std::int64_t rows, std::int64_t tokens) {
  auto part = rows_of(batch, 0, rows);
  const auto before = part.ids_bc.size(1);
  if (part.places_t.defined() && tokens < before) part.places_t = places_in(part, 0, rows, tokens);
  for (auto* tensor : {&part.ids_bc, &part.targets_bc, &part.segments_bc, &part.target_weights_bc,
                       &part.target_bytes_bc, &part.source_ids_bs, &part.source_segments_bs})
    if (tensor->defined()) *tensor = tensor->narrow(1, 0, std::min(tensor->size(1), tokens));
  const auto counted = part.labels_l.defined() ? torch::ones_like(part.labels_l) : wanted_targets_t(part) >= 0;
  part.weight = counted.sum().to(torch::kDouble);
  return part;
}

torch::Tensor widened(const torch::Tensor& logits) {
  const bool narrow = logits.scalar_type() == torch::kBFloat16 || logits.scalar_type() == torch::kHalf;
  return narrow ? logits.to(torch::kFloat) : logits;
}

// Computed in float32: by a kernel that reads narrow logits as they are, or from widened ones.
static torch::Tensor sum_of_losses(const torch::Tensor& logits, const torch::Tensor& targets_t, double smoothing) {
  const auto used = has_fused_cross_entropy(logits) ? logits : widened(logits);
  return cross_entropy_sum(used.flatten(0, -2), targets_t, smoothing);
}

Objective token_objective(double smoothing) {
  return [smoothing](const torch::Tensor& logits, const Batch& batch) {
    const auto targets_t = wanted_targets_t(batch), weights_t = wanted_weights_t(batch);
    if (!weights_t.defined()) return sum_of_losses(logits, targets_t, smoothing);
    const auto logits_tv = widened(logits).flatten(0, -2);
    const auto loss_t = at::cross_entropy_loss(logits_tv, targets_t, {}, at::Reduction::None, /*ignore_index=*/-1);
    return (loss_t * weights_t).sum();
  };
}

void TokenMeasures::score(const torch::Tensor& logits, const Batch& batch, ScoreSums& sums) const {
  const auto targets_t = wanted_targets_t(batch), right_t = logits.flatten(0, -2).argmax(1) == targets_t;
  sums.add("loss", sum_of_losses(logits, targets_t, /*smoothing=*/0));
  sums.add("correct", right_t.sum());
  sums.add("weight", batch.target_weights_bc.defined() ? (batch.targets_bc >= 0).sum() : batch.weight);
  if (batch.target_bytes_bc.defined()) sums.add("bytes", batch.target_bytes_bc.sum());
  if (!by_row_) return;
  const auto rows = batch.ids_bc.size(0);
  const auto wrong_t = right_t.logical_or(targets_t < 0).logical_not().to(torch::kLong);
  const auto wrong_b = torch::zeros(rows, wrong_t.options()).index_add_(0, rows_of_targets_t(batch), wrong_t);
  sums.add("exact", (wrong_b == 0).sum());
  sums.add("rows", torch::full({}, rows, wrong_t.options()));
}

Evaluation TokenMeasures::report(const ScoreSums& sums, Split split, Tables) const {
  const double targets = sums.item("weight"), rows = by_row_ ? sums.item("rows") : 0;
  return {report_({.loss = sums.item("loss") / targets,
                   .accuracy = sums.item("correct") / targets,
                   .targets = static_cast<std::int64_t>(targets),
                   .bytes = sums.of_batches().contains("bytes") ? sums.item("bytes") : 0,
                   .exact_match = by_row_ ? sums.item("exact") / rows : 0,
                   .rows = static_cast<std::int64_t>(rows)},
                  split)};
}

std::int64_t evaluation_rows(std::int64_t row_length) {
  constexpr std::int64_t tokens = 8192;
  return std::max<std::int64_t>(1, tokens / row_length);
}

void RowStream::require(Split split) const {
  if (count(split) == 0) throw Error(ExitCode::usage, "there is no test split: this run's data.test_path is not set");
}

std::int64_t RowStream::evaluation_batches(Split split) const {
  require(split);
  const auto rows = evaluation_rows(row_length_);
  return (count(split) + rows - 1) / rows;
}

Batch RowStream::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  const auto rows = evaluation_rows(row_length_), first = index * rows;
  return batch_of(split, first, std::min(rows, count(split) - first), device);
}

std::int64_t RowStream::evaluation_tokens(Split split, std::int64_t index) const {
  const auto rows = evaluation_rows(row_length_), first = index * rows;
  return tokens_of(split, first, std::min(rows, count(split) - first));
}

}  // namespace metaformer
