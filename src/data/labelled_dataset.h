#pragma once
// Labelled texts as tokens and class ids, and the padded batches a classifier sees.

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "data/codec.h"
#include "data/labelled_source.h"
#include "data/token_rows.h"

namespace metaformer {

class LabelledDataset {
 public:
  // Tokens beyond `context` are cut off. The codec comes from the training texts unless one is given. Errors (exit code
  // 3): only one label, a label that is not among the codec's, a text without a token.
  LabelledDataset(const LabelledSplits& splits, const DataConfig& config, std::int64_t context, Codec codec);

  const Codec& codec() const { return codec_; }
  std::int64_t count(Split split) const { return static_cast<std::int64_t>(examples(split).size()); }
  std::int64_t cut_count() const { return cut_count_; }  // texts that were longer than the context
  double mean_length() const;                            // tokens of a training text

  // Rows first ... first + rows of step's global order; a step has `rows_per_step`. Every epoch is a permutation of the
  // training texts of its own: a function of (seed, epoch).
  LabelledRows training_rows(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step, std::int64_t first,
                             std::int64_t rows) const;

  // A split in order of length, so that little is padded.
  LabelledRows rows(Split split, std::int64_t first, std::int64_t rows) const;

  // Rows drawn at random: a function of (seed, index).
  LabelledRows random_rows(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const;

 private:
  struct Example {
    std::vector<std::int32_t> ids;
    std::int64_t label = 0;
  };

  Example encode(const LabelledText& text, std::int64_t context);
  const std::vector<Example>& examples(Split split) const { return examples_[static_cast<std::size_t>(split)]; }
  const std::vector<std::size_t>& epoch_order(std::uint64_t seed, std::int64_t epoch) const;
  static LabelledRows batch_of(const std::vector<const Example*>& examples);

  Codec codec_;
  std::array<std::vector<Example>, 3> examples_;  // by Split; in order of length but for training
  std::int64_t cut_count_ = 0;

  // The permutation that was asked for last.
  mutable std::vector<std::size_t> order_;
  mutable std::optional<std::pair<std::uint64_t, std::int64_t>> order_key_;
};

}  // namespace metaformer
