#pragma once
// Statistics of a corpus, before anything is trained on it.

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "data/corpus.h"
#include "data/packing.h"
#include "data/pair_dataset.h"
#include "data/token_rows.h"

namespace metaformer {

// How long texts are.

// Percentiles by nearest rank: the smallest value that so many percent of all do not exceed.
struct LengthStats {
  double mean = 0;
  std::int64_t median = 0, percentile_90 = 0, percentile_95 = 0, percentile_99 = 0, longest = 0;
};

// Of no lengths all is 0.
LengthStats measure_lengths(std::vector<std::int64_t> lengths);

nlohmann::ordered_json to_json(const LengthStats& lengths);

// What labelled texts are like, before anything is trained on them.
struct SplitStats {
  std::int64_t texts = 0;
  std::vector<std::int64_t> class_counts;  // by class id
  LengthStats tokens;                      // of a text, before it is cut off
  std::int64_t all_tokens = 0, unknown_tokens = 0;
  std::int64_t cut = 0;     // texts longer than model.context
  std::int64_t copies = 0;  // texts that stand in the split before, byte for byte
};

struct LabelledStats {
  std::vector<std::string> labels;  // by class id
  std::int64_t vocabulary = 0;
  bool has_unknown = false;          // whether the tokenizer has an unknown token
  std::array<SplitStats, 3> splits;  // by Split
  // Texts of one split, copies counted, that stand in another too.
  std::int64_t validation_in_train = 0, test_in_train = 0, test_in_validation = 0;
  // Share of the tokens of an epoch's training batches that is padding: each batch of texts as they come, and with
  // task.bucketing. Texts are as long as they are: nothing is taken out of them (task.token_removal).
  double padding_unsorted = 0, padding_bucketed = 0;
  std::optional<PackStats> packs;  // of the training texts, with data.packing
  nlohmann::ordered_json sources;  // as LabelledSplits describes them: files, malformed rows, ratings left out

  const SplitStats& operator[](Split split) const { return splits[static_cast<std::size_t>(split)]; }
};

// Tokens are those of the tokenizer that training with this config would make. Errors: those of encode_splits.
LabelledStats measure_labelled_texts(LabelledSplits splits, const ExperimentConfig& config);

nlohmann::ordered_json to_json(const LabelledStats& stats);

// What pairs of texts are like, before anything is trained on them.
struct SideStats {
  LengthStats tokens;  // of a text, before it is cut off, without a mark
  std::int64_t all_tokens = 0, unknown_tokens = 0;
  std::int64_t cut = 0;  // texts that do not fit model.context with their mark
};

struct PairSplitStats {
  std::int64_t pairs = 0;
  SideStats source, target;
  std::int64_t copies = 0;  // pairs that stand in the split before, token by token
};

struct PairStats {
  std::int64_t vocabulary = 0;
  bool has_unknown = false;              // whether the tokenizer has an unknown token
  std::array<PairSplitStats, 3> splits;  // by Split

  // Sources of one split, copies counted, that stand in another too.
  std::int64_t validation_in_train = 0, test_in_train = 0, test_in_validation = 0;
  double padding = 0;              // share of the tokens of both sides in an epoch's training batches
  nlohmann::ordered_json sources;  // as PairDataset describes its files

  const PairSplitStats& operator[](Split split) const { return splits[static_cast<std::size_t>(split)]; }
};

// Training pairs whose targets do not fit model.context are not counted: they are left out of training.
PairStats measure_pairs(const PairDataset& pairs, const ExperimentConfig& config);

nlohmann::ordered_json to_json(const PairStats& stats);

// What a text is like for a language model.
struct TextSplitStats {
  std::int64_t characters = 0, tokens = 0, unknown_tokens = 0;
  std::optional<std::int64_t> unknown_characters;  // nothing where white space is dropped
  double unigram_entropy = 0;                      // of the tokens, in nats
};

struct TextStats {
  std::string task;  // its kind
  std::string path;
  nlohmann::ordered_json source;  // as Corpus describes it
  std::int64_t vocabulary = 0;
  bool has_unknown = false;              // whether the tokenizer has an unknown token
  std::array<TextSplitStats, 2> splits;  // train and validation, by Split

  std::optional<PackStats> packs;  // of the training documents and their pieces, with data.packing

  const TextSplitStats& operator[](Split split) const { return splits[static_cast<std::size_t>(split)]; }
};

// Tokens are those of the tokenizer that training with this config would make. Errors (exit code 3): not UTF-8, a split
// without two tokens.
TextStats measure_text(const Corpus& corpus, const ExperimentConfig& config);

nlohmann::ordered_json to_json(const TextStats& stats);

}  // namespace metaformer
