#include "data/datasets/pair_dataset.h"

namespace metaformer {

std::int64_t row_length(const std::vector<std::int32_t>& ids, std::int64_t context) {
  return std::min(std::ssize(ids) + 1, context);
}

bool is_cut(const std::vector<std::int32_t>& ids, std::int64_t context) { return std::ssize(ids) >= context; }

// Of all rows, each cut to `context` tokens.
static void append_target(TokenRows& rows, const std::vector<std::int32_t>& target, std::int32_t mark,
                          std::int64_t context) {
  const auto length = row_length(target, context);
  for (std::int64_t place = 0; place < rows.length; ++place) {
    const auto at = [&](std::int64_t i) { return target[static_cast<std::size_t>(i)]; };
    const bool is_used = place < length;
    rows.ids.push_back(!is_used || place == 0 ? mark : at(place - 1));
    rows.targets.push_back(!is_used ? -1 : place < std::ssize(target) ? at(place) : mark);
    rows.segments.push_back(is_used ? 0 : -1);
  }
  rows.target_count += length;
}

PairRows to_rows(const std::vector<EncodedPair>& pairs, std::int32_t mark, std::int64_t context) {
  std::vector<std::vector<std::int32_t>> sources;
  PairRows rows;
  for (const auto& pair : pairs) {
    auto& source = sources.emplace_back(pair.source);
    truncate(source, context - 1, Truncation::head);
    source.push_back(mark);
    rows.target.length = std::max(rows.target.length, row_length(pair.target, context));
  }
  rows.source = pad_rows({sources.begin(), sources.end()});
  rows.target.rows = std::ssize(pairs);
  for (const auto& pair : pairs) append_target(rows.target, pair.target, mark, context);
  if (rows.target.target_count == rows.target.rows * rows.target.length) rows.target.segments.clear();
  return rows;
}

}  // namespace metaformer
