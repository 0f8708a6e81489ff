#pragma once
// The output of all datasets: splits, and rows of token ids as plain arrays.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "config/classification_config.h"

namespace metaformer {

enum class Split { train, validation, test };
template <>
struct EnumNames<Split> {
  static constexpr std::array<std::string_view, 3> values = {"train", "validation", "test"};
};

inline constexpr std::array every_split = {Split::train, Split::validation, Split::test};

// Row-major [rows, length] token ids and the token after each of them; target -1: none (padding).
struct TokenRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> targets;
  std::int64_t target_count = 0;       // targets that are not -1
  std::vector<std::int64_t> segments;  // numbers of documents, -1: padding; empty when all are one
};

// Row-major [rows, length] token ids, padded to the longest row; segment 0: a token, -1: padding.
struct LabelledRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> segments;  // empty when nothing is padded
  std::vector<std::int64_t> labels;    // one per row; empty when unknown
};

// Cuts a text to its first, its last, or its first and last (half each) `context` tokens. Whether it was longer.
bool truncate(std::vector<std::int32_t>& ids, std::int64_t context, Truncation truncation);

// One or more texts as rows of a batch without labels.
LabelledRows pad_rows(const std::vector<std::span<const std::int32_t>>& texts);

}  // namespace metaformer
