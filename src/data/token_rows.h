#pragma once
// Labelled texts that are split, and their rows of tokens.

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

// The output of all datasets: splits, and rows of token ids as plain arrays.
enum class Split { train, validation, test };
template <>
struct EnumNames<Split> {
  static constexpr std::array<std::string_view, 3> values = {"train", "validation", "test"};
};

inline constexpr std::array every_split = {Split::train, Split::validation, Split::test};
inline constexpr std::array held_out_splits = {Split::validation, Split::test};

// Row-major [rows, length] token ids and what is predicted at each of them (by a causal model the token after it);
// target -1: none.
struct TokenRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> targets;
  std::int64_t target_count = 0;       // targets that are not -1
  std::vector<std::int64_t> places;    // of the targets in `targets`, ascending, then -1; empty: anywhere
  std::vector<std::int64_t> segments;  // numbers of documents, -1: padding; empty when all are one
  bool restarts = false;               // positions start again in every segment
  std::vector<float> target_weights;   // in the loss; empty: 1 each
  std::int64_t sequences = 0;          // that these weights add up to
};

// Row-major [rows, length] token ids, padded to the longest row; segment: the number of the text in its row, -1:
// padding.
struct LabelledRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> segments;    // empty when nothing is padded, and a row is one text
  std::vector<std::int64_t> labels;      // one per text; empty when unknown
  std::vector<std::int64_t> label_rows;  // of packs: row and segment of every text
};

// The same rows of two sequences each: what is read, and what is written.
struct PairRows {
  LabelledRows source;
  TokenRows target;
};

// Cuts a text to its first, its last, or its first and last (half each) `context` tokens. Whether it was longer.
bool truncate(std::vector<std::int32_t>& ids, std::int64_t context, Truncation truncation);

// One or more texts as rows of a batch without labels.
LabelledRows pad_rows(const std::vector<std::span<const std::int32_t>>& texts);

// Several texts in each row, without labels.
LabelledRows pack_rows(const std::vector<std::vector<std::vector<std::int32_t>>>& packs);

// Labelled texts that are already split: the result of every source.
struct LabelledText {
  std::string text;
  std::string label;
  std::string place;  // for messages: "reviews.csv:17"
};

struct LabelledSplits {
  std::array<std::vector<LabelledText>, 3> texts;  // by Split; no test texts if the config names none
  nlohmann::ordered_json description;              // paths and digests, for environment.json

  std::vector<LabelledText>& operator[](Split split) { return texts[static_cast<std::size_t>(split)]; }
  const std::vector<LabelledText>& operator[](Split split) const { return texts[static_cast<std::size_t>(split)]; }
};

}  // namespace metaformer
