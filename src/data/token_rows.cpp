#include "data/token_rows.h"

#include <algorithm>

#include "base/random.h"

namespace metaformer {

bool is_held_out(const std::string& key, double fraction) {
  return static_cast<double>(Rng::mix(hash_name(key)) >> 11) * 0x1p-53 < fraction;
}

bool truncate(std::vector<std::int32_t>& ids, std::int64_t context, Truncation truncation) {
  if (static_cast<std::int64_t>(ids.size()) <= context) return false;
  const auto tail = truncation == Truncation::head ? 0 : truncation == Truncation::tail ? context : context / 2;
  std::copy(ids.end() - tail, ids.end(), ids.begin() + (context - tail));
  ids.resize(static_cast<std::size_t>(context));
  return true;
}

LabelledRows pad_rows(const std::vector<std::span<const std::int32_t>>& texts) {
  std::vector<std::vector<std::span<const std::int32_t>>> packs;
  for (const auto text : texts) packs.push_back({text});
  auto batch = pack_rows(packs);
  batch.label_rows.clear();
  if (std::ranges::find(batch.segments, -1) == batch.segments.end()) batch.segments.clear();
  return batch;
}

LabelledRows pack_rows(const std::vector<std::vector<std::span<const std::int32_t>>>& packs, std::int64_t step,
                       std::int64_t longest) {
  LabelledRows batch{.rows = std::ssize(packs)};
  for (const auto& pack : packs) {
    std::int64_t length = 0;
    for (const auto text : pack) length += std::ssize(text);
    batch.length = std::max(batch.length, length);
  }
  batch.length = std::min((batch.length + step - 1) / step * step, longest);
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const auto& pack = packs[static_cast<std::size_t>(row)];
    for (std::int64_t segment = 0; segment < std::ssize(pack); ++segment) {
      const auto& text = pack[static_cast<std::size_t>(segment)];
      batch.ids.insert(batch.ids.end(), text.begin(), text.end());
      batch.segments.insert(batch.segments.end(), text.size(), segment);
      batch.label_rows.insert(batch.label_rows.end(), {row, segment});
    }
    const auto row_end = static_cast<std::size_t>((row + 1) * batch.length);
    batch.ids.resize(row_end, 0);
    batch.segments.resize(row_end, -1);
  }
  return batch;
}

}  // namespace metaformer
