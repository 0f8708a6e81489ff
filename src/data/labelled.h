#pragma once
// Labelled texts for a classifier: read from tables or IMDb, split, as tokens, in batches.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/experiment_config.h"
#include "data/epoch_order.h"
#include "data/packing.h"
#include "data/tables.h"
#include "data/token_rows.h"
#include "text/tokenizer.h"

namespace metaformer {

// The columns that a config names: text, label.
TableColumns columns_of(const LabelledDataConfig& config);

// With data.rating the labels of a table become "positive" or "negative". Leaves out and counts the rows whose rating
// lies between data.rating.negative_to and positive_from. A rating is malformed if it is no finite number, or outside
// of lowest ... highest.
void classify_ratings(Table& table, const RatingConfig& rating);

// A table as the config describes it, with classes from ratings. Errors: those of read_table and check_rows; exit code
// 3 too for a first row that looks like an unnamed header, unless data.header is set. `follows_header`: see
// TableColumns.
Table read_labelled_table(const std::filesystem::path& path, const LabelledDataConfig& config,
                          bool follows_header = false);

// The files that load_labelled_splits reads, and their names in the description of the splits; downloads a missing
// public corpus (unless `offline`). Errors: the config names no data, or data that exclude each other (exit code 2);
// those of downloads (exit code 3).
using LabelledSources = std::vector<std::pair<std::string, std::filesystem::path>>;
LabelledSources labelled_sources(const LabelledDataConfig& config, bool offline);

// Reads the public corpus that data.corpus names (from data.path, if that is set), with its splits. Otherwise reads
// data.path, and data.validation_path and data.test_path if they are set. Without data.validation_path a stable hash of
// the text holds data.validation_fraction of the rows out. The texts of data.extra_path are added to the training
// texts, except those that a held-out split has. Errors: exit codes 2 and 3.
LabelledSplits load_labelled_splits(const LabelledDataConfig& config, bool offline);

// The texts for a tokenizer to learn from, each followed by a line break.
std::string joined_texts(const std::vector<LabelledText>& texts);

struct EncodedText {
  std::vector<std::int32_t> ids;  // not cut to the context; at least one
  std::int64_t label = 0;
  std::string text;  // only for training texts that are split into subwords again in every epoch
};

struct EncodedSplits : Splits<EncodedText> {
  Codec codec;
  BySplit<std::string> text_digests;  // SHA-256 over the texts in the order of the source
  std::int64_t training_bytes = 0;    // of the training texts
};

// Encodes the texts. If the codec lacks a tokenizer or labels, makes them from the training texts. Errors (exit code
// 3): only one label, a label that is not among the codec's, a text without a token.
EncodedSplits encode_splits(LabelledSplits splits, const LabelledDataConfig& config, Codec codec);

// How batches are made from texts.
struct BatchOptions {
  std::int64_t context = 0;  // longest row, in tokens
  Truncation truncation = Truncation::head;
  double sampling = 0;                          // subword regularisation of training texts (data.tokenizer.sampling)
  double token_removal = 0, token_unknown = 0;  // probabilities for each token of a training text
  std::int64_t bucketing = 1;
  PackingConfig packing;

  static BatchOptions of(const ExperimentConfig& config);
};

// Padded or packed batches of labelled texts.
class LabelledDataset {
 public:
  // Errors (exit code 2): token_unknown with a tokenizer that has no unknown token.
  LabelledDataset(EncodedSplits splits, const BatchOptions& options);

  const Codec& codec() const { return splits_.codec; }
  const nlohmann::ordered_json& description() const { return splits_.description; }
  const std::vector<EncodedText>& texts(Split split) const { return splits_[split]; }
  const std::string& text_digest(Split split) const { return splits_.text_digests[split]; }
  std::int64_t count(Split split) const { return std::ssize(texts(split)); }
  std::int64_t cut_count() const { return cut_count_; }  // texts that are longer than the context
  double bytes_per_token() const;                        // of the training texts
  double mean_length() const;                            // mean number of tokens of a training text in a batch

  // Rows `first` ... `first + rows - 1` of step `step` in the order of EpochOrder; a step has `rows_per_step` rows.
  // Noise and resampling of a text are functions of (seed, its place in the sequence of epochs).
  LabelledRows training_rows(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step, std::int64_t first,
                             std::int64_t rows) const;

  // With data.packing, in place of training_rows: packs `first` ... `first + rows - 1` of the endless series of epochs,
  // each of them a row. Every epoch has `packs_of_epoch` packs.
  LabelledRows training_packs(std::uint64_t seed, std::int64_t first, std::int64_t rows) const;
  bool is_packed() const { return packs_.has_value(); }
  std::int64_t packs_of_epoch() const { return packs_->packs(); }

  // Rows of a split. Those of validation and test are sorted by descending length, so that there is little padding and
  // the memory of a batch suffices for the next one.
  LabelledRows rows(Split split, std::int64_t first, std::int64_t rows) const;

  // For each place of texts(split), the index of its text in the order of the source.
  const std::vector<std::size_t>& source_order(Split split) const { return source_order_[split]; }

  // Training texts `first` ... `first + rows - 1`, without noise, in a random order that has each text once: a function
  // of the seed. Fewer at the end of the order.
  LabelledRows distinct_training_rows(std::uint64_t seed, std::int64_t first, std::int64_t rows) const;

  // Rows drawn at random: a function of (seed, index).
  LabelledRows random_rows(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const;

 private:
  std::vector<std::int32_t> noisy_ids(const EncodedText& text, std::uint64_t seed, std::int64_t place) const;
  double expected_length(const EncodedText& text) const;

  std::pair<std::vector<std::int32_t>, std::int64_t> row_of(Split split, std::size_t index) const;  // without noise

  EncodedSplits splits_;  // validation and test by falling length
  BySplit<std::vector<std::size_t>> source_order_;
  BatchOptions options_;
  std::int64_t cut_count_ = 0;
  std::optional<EpochOrder> order_;   // of training texts
  std::optional<PackedOrder> packs_;  // of training texts, with data.packing
};

}  // namespace metaformer
