#pragma once
// Statistics of a config's data and tokenizer, before anything is trained on them.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "data/packing.h"
#include "data/pairs.h"
#include "data/token_rows.h"
#include "data/tokenized_text.h"

namespace metaformer {

// Percentiles by nearest rank: the smallest value that the given percentage of all values does not exceed.
struct LengthStats {
  double mean = 0;
  std::int64_t median = 0, percentile_90 = 0, percentile_95 = 0, percentile_99 = 0, longest = 0;
};

// All 0 if there are no lengths.
LengthStats measure_lengths(std::vector<std::int64_t> lengths);

// Tokens of texts before they are cut off, without marks.
struct TokenStats {
  LengthStats tokens;  // of a text
  std::int64_t all_tokens = 0, unknown_tokens = 0;
  std::int64_t cut = 0;  // texts that do not fit model.context; those of pairs with their mark
};

struct LabelledSplitStats : TokenStats {
  std::int64_t texts = 0;
  std::vector<std::int64_t> class_counts;  // by class id
  std::int64_t copies = 0;                 // texts that occur earlier in the same split, byte for byte
};

struct PairSplitStats {
  std::int64_t pairs = 0;
  TokenStats source, target;
  std::int64_t copies = 0;  // pairs that occur earlier in the same split, token by token
};

struct TextSplitStats {
  std::int64_t characters = 0, tokens = 0, unknown_tokens = 0;
  std::optional<std::int64_t> unknown_characters;  // nothing where white space is dropped
  double unigram_entropy = 0;                      // of the tokens, in nats
};

// The numbers of texts, or sources, of one split that also occur in another; copies are counted.
struct SharedTexts {
  std::int64_t validation_in_train = 0, test_in_train = 0, test_in_validation = 0;
};

template <class SplitStats>
struct DataStats {
  std::int64_t vocabulary = 0;
  bool has_unknown = false;        // whether the tokenizer has an unknown token
  nlohmann::ordered_json sources;  // the description of the data's files
  BySplit<SplitStats> splits;

  const SplitStats& operator[](Split split) const { return splits[split]; }
};

struct LabelledStats : DataStats<LabelledSplitStats> {
  std::vector<std::string> labels;  // by class id
  SharedTexts shared;
  // Fraction of the tokens of an epoch's training batches that is padding: with texts in random order, and with
  // task.bucketing. Texts have their full length: task.token_removal is not applied.
  double padding_unsorted = 0, padding_bucketed = 0;
  std::optional<PackStats> packs;  // of the training texts, with data.packing
};

struct PairStats : DataStats<PairSplitStats> {
  SharedTexts shared;
  double padding = 0;  // fraction of both sides' tokens in an epoch's training batches that is padding
};

struct TextStats : DataStats<TextSplitStats> {  // no test split
  std::string task;                             // its kind
  std::string path;
  std::optional<PackStats> packs;  // of the training documents and their pieces, with data.packing
};

// Tokens are those of the tokenizer that training with this config would make. Errors: those of encode_splits.
LabelledStats measure_labelled_texts(LabelledSplits splits, const ExperimentConfig& config);

// Training pairs whose targets do not fit model.context are not counted: they are left out of training.
PairStats measure_pairs(const PairDataset& pairs, const ExperimentConfig& config);

// Errors (exit code 3): a split without two tokens.
TextStats measure_text(TokenizedText text, const ExperimentConfig& config);

nlohmann::ordered_json to_json(const LabelledStats& stats);
nlohmann::ordered_json to_json(const PairStats& stats);
nlohmann::ordered_json to_json(const TextStats& stats);

struct TokenizerReport {
  std::shared_ptr<Tokenizer> tokenizer;
  // Kind, vocabulary, counts of the training and validation texts, the speed of a first and a second pass over the
  // training texts in one thread, and the ten longest tokens.
  nlohmann::ordered_json json;
};

// Makes the tokenizer of a config, as training would, and encodes the training and validation texts. Errors: exit codes
// 2 (the task has no texts) and 3.
TokenizerReport report_tokenizer(const ExperimentConfig& config, bool offline);

// The counts on which the size of a model depends; nothing if a count is not known.
struct DataCounts {
  std::optional<std::int64_t> vocabulary, classes;
};

// Counts a config's data, if they are on this machine, readable and valid. Subwords are learned only from texts of up
// to a MiB, for which that takes seconds, or are taken from the cache.
DataCounts count_data(const ExperimentConfig& config);

}  // namespace metaformer
