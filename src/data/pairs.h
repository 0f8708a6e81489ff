#pragma once
// Pairs of texts: a model reads the source and writes the target, for example a translation. Read from tables or from
// the lines of two files, split, as tokens, in batches.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/experiment_config.h"
#include "data/tables.h"
#include "data/token_rows.h"
#include "text/tokenizer.h"

namespace metaformer {

struct TextPair {
  std::string source;
  std::string target;
  std::string source_place, target_place;  // for messages: "train.de:17", "train.en:17"
};
using PairSplits = Splits<TextPair>;

// The columns that a config names: source, target.
TableColumns columns_of(const ParallelDataConfig& config);

// A table of pairs. Errors: those of read_table and check_rows. `target_key`: the key for a file with the targets,
// which the message on a table of one column suggests.
Table read_pair_table(const std::filesystem::path& path, const ParallelDataConfig& config, std::string_view target_key,
                      bool follows_header = false);

// Pairs of texts from two files: line n of one belongs to line n of the other.
struct LinePairs {
  std::vector<TextPair> pairs;
  std::string source_sha256, target_sha256;  // of the whole files, before decompression
};

// Each file is UTF-8, gzipped or not; lines end with LF or CRLF. Errors (exit code 3) name the file and line: those of
// read_text_file, a line that is not UTF-8, has NUL bytes, more than 1 MiB, white space only, or no partner; no lines.
LinePairs read_line_pairs(const std::filesystem::path& source, const std::filesystem::path& target);

// Reads data.path, data.validation_path and data.test_path: each is a table, or with its target path the lines of two
// files. Without data.validation_path a stable hash of the source holds data.validation_fraction of the pairs out, so
// equal sources are in the same split. Without data.path reads the public corpus multi30k, which data.corpus must name,
// and downloads it if it is missing (unless `offline`). Not for a config with data.synthetic.
//
// Errors: no data; paths, languages or keys of tables that mean nothing for these data; an unknown corpus or one
// without pairs (exit code 2); those of tables and lines, a missing corpus, one with another digest, too few distinct
// sources for a validation split (exit code 3).
PairSplits load_pair_splits(const ParallelDataConfig& config, bool offline);

// The texts for a tokenizer to learn from: those of both sides, each followed by a line break.
std::string joined_texts(const std::vector<TextPair>& pairs);

struct EncodedPair {
  std::vector<std::int32_t> source, target;  // without marks
};

// The number of tokens of a text in its row: with its mark, and at most `context`.
std::int64_t row_length(const std::vector<std::int32_t>& ids, std::int64_t context);

// Whether a text with its mark is longer than `context`.
bool is_cut(const std::vector<std::int32_t>& ids, std::int64_t context);

class PairDataset {
 public:
  virtual ~PairDataset() = default;

  const Codec& codec() const { return codec_; }
  const nlohmann::ordered_json& description() const { return description_; }
  const std::string& summary() const { return summary_; }

  // Mean number of tokens of a training pair: both sequences with their marks.
  double mean_tokens() const { return mean_tokens_; }

  // Mean number of bytes of a token of the training pairs; nothing for synthetic pairs.
  std::optional<double> bytes_per_token() const { return bytes_per_token_; }

  // Number of pairs of an epoch; nothing if every training pair is drawn anew.
  std::optional<std::int64_t> pairs_of_epoch() const { return pairs_of_epoch_; }

  // Mean number of pairs of a training batch.
  double mean_pairs() const { return mean_pairs_; }

  // The batch `micro` (0 ... train.accumulate - 1) of a step: a function of (train.seed, step, micro).
  virtual std::vector<EncodedPair> training_pairs(std::int64_t step, std::int64_t micro) const = 0;

  // Pairs to evaluate on; those of validation and test are sorted by falling length.
  virtual std::int64_t count(Split split) const = 0;
  virtual EncodedPair pair(Split split, std::int64_t index) const = 0;

  // The texts of the same pair as they were read; for a training pair, its decoded tokens.
  struct Texts {
    std::string source, target;
  };
  virtual Texts texts(Split split, std::int64_t index) const;

 protected:
  explicit PairDataset(Codec codec) : codec_(std::move(codec)) {}

  Codec codec_;
  nlohmann::ordered_json description_;
  std::string summary_;
  double mean_tokens_ = 0, mean_pairs_ = 0;
  std::optional<double> bytes_per_token_;
  std::optional<std::int64_t> pairs_of_epoch_;
};

// The pairs of texts that the config names, or synthetic pairs. If the codec lacks a tokenizer, makes it from both
// sides of the training texts. Errors: exit codes 2 and 3.
std::shared_ptr<const PairDataset> load_pairs(const ExperimentConfig& config, bool offline, Codec codec);

// Rows of a batch. `mark` stands behind a source and before a target, and is the token to predict after a target's last
// token. Sources and targets with these marks are cut to `context` tokens: a source keeps its mark, a target loses the
// one to predict.
PairRows to_rows(const std::vector<EncodedPair>& pairs, std::int32_t mark, std::int64_t context);

}  // namespace metaformer
