#pragma once
// Splits of a data set, and rows of token ids as plain arrays, which all datasets make.

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/data_config.h"

namespace metaformer {

enum class Split { train, validation, test };
constexpr std::array<std::string_view, 3> enum_names(Split) { return {"train", "validation", "test"}; }

inline constexpr std::array every_split = {Split::train, Split::validation, Split::test};
inline constexpr std::array held_out_splits = {Split::validation, Split::test};

// A value for each split.
template <class Value>
struct BySplit : std::array<Value, 3> {
  using std::array<Value, 3>::operator[];
  Value& operator[](Split split) { return (*this)[static_cast<std::size_t>(split)]; }
  const Value& operator[](Split split) const { return (*this)[static_cast<std::size_t>(split)]; }
};

// Texts that are already split: the result of every source. There are no test texts if the config names none.
template <class Text>
struct Splits {
  BySplit<std::vector<Text>> texts;
  nlohmann::ordered_json description;  // for environment.json: paths, digests, counts

  std::vector<Text>& operator[](Split split) { return texts[split]; }
  const std::vector<Text>& operator[](Split split) const { return texts[split]; }
};

struct LabelledText {
  std::string text;
  std::string label;
  std::string place;  // for messages: "reviews.csv:17"
};
using LabelledSplits = Splits<LabelledText>;

// Whether a text, or another item, with this key is held out. It is a fixed function of the key, true for about
// `fraction` of all keys.
bool is_held_out(const std::string& key, double fraction);

// Moves the training texts whose `key` is held out to the validation split, so that equal keys are in one split. Errors
// (exit code 3): one of the two splits is empty; `keys` and `advice` are for this message.
template <class Text>
void hold_out(Splits<Text>& splits, std::string Text::*key, const DataConfig& config, std::string_view keys,
              const std::string& advice = "") {
  auto all = std::exchange(splits[Split::train], {});
  for (auto& text : all)
    splits[is_held_out(text.*key, config.validation_fraction) ? Split::validation : Split::train].push_back(
        std::move(text));
  if (!splits[Split::train].empty() && !splits[Split::validation].empty()) return;
  std::set<std::string_view> distinct;
  for (const auto& texts : splits.texts)
    for (const auto& text : texts) distinct.insert(text.*key);
  fail_data(
      "{}: {} distinct {} are too few for data.validation_fraction {} to leave some on either side; set "
      "data.validation_path{}",
      *config.path, distinct.size(), keys, config.validation_fraction, advice);
}

// Row-major [rows, length] token ids, and the target at each of them (for a causal model, the token after it); target
// -1: none.
struct TokenRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> targets;
  std::int64_t target_count = 0;           // targets that are not -1
  std::vector<std::int64_t> target_bytes;  // of the text that each target stands for; empty: not counted
  std::vector<std::int64_t> places;        // indices of targets in `targets`, ascending, then -1; empty: anywhere
  std::vector<std::int64_t> segments;      // document of each token, -1: padding; empty if all are of one
  bool restarts = false;                   // positions start again in every segment
  std::vector<float> target_weights;       // in the loss; empty: 1 each
  std::int64_t sequences = 0;              // number of sequences, the sum of target_weights
};

// Row-major [rows, length] token ids, padded to the longest row; segment: the number of the text in its row, -1:
// padding.
struct LabelledRows {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> segments;    // empty if nothing is padded and every row is one text
  std::vector<std::int64_t> labels;      // one per text; empty when unknown
  std::vector<std::int64_t> label_rows;  // only for packs: row and segment of every text
};

// Rows of pairs: sources, which are read, and targets, which are written.
struct PairRows {
  LabelledRows source;
  TokenRows target;
};

// Cuts a text to its first, its last, or its first and last (half each) `context` tokens. Returns whether it was
// longer.
bool truncate(std::vector<std::int32_t>& ids, std::int64_t context, Truncation truncation);

// One or more texts as rows of a batch without labels.
LabelledRows pad_rows(const std::vector<std::span<const std::int32_t>>& texts);

// Several texts in each row, without labels. The length of the longest row is rounded up to a multiple of `step`, but
// not above `longest`.
LabelledRows pack_rows(const std::vector<std::vector<std::span<const std::int32_t>>>& packs, std::int64_t step = 1,
                       std::int64_t longest = std::numeric_limits<std::int64_t>::max());

}  // namespace metaformer
