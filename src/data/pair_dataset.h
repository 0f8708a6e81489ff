#pragma once
// Pairs of sequences, of which the second is to be written from the first.

#include <nlohmann/json.hpp>

#include "config/experiment_config.h"
#include "data/token_rows.h"
#include "text/tokenizer.h"

namespace metaformer {

struct EncodedPair {
  std::vector<std::int32_t> source, target;  // without marks
};

// Tokens of a text in its row: with its mark, and at most `context`.
std::int64_t row_length(const std::vector<std::int32_t>& ids, std::int64_t context);

// Whether a text with its mark is longer than `context`.
bool is_cut(const std::vector<std::int32_t>& ids, std::int64_t context);

class PairDataset {
 public:
  virtual ~PairDataset() = default;

  virtual const Codec& codec() const = 0;
  virtual nlohmann::ordered_json description() const = 0;
  virtual std::string summary() const = 0;

  // Of both sequences of a training pair with their marks, on average.
  virtual double mean_tokens() const = 0;

  // Pairs of an epoch; nothing where every pair is a new one.
  virtual std::optional<std::int64_t> pairs_of_epoch() const = 0;

  // Of a training batch, on average.
  virtual double mean_pairs() const = 0;

  // The batch `micro` (0 ... train.accumulate - 1) of a step: a function of (train.seed, step, micro).
  virtual std::vector<EncodedPair> training_pairs(std::int64_t step, std::int64_t micro) const = 0;

  // Pairs to evaluate on, those of validation and test by falling length.
  virtual std::int64_t count(Split split) const = 0;
  virtual EncodedPair pair(Split split, std::int64_t index) const = 0;

  // The texts of the same pair, as they were read; of a training pair, what its tokens say.
  struct Texts {
    std::string source, target;
  };
  virtual Texts texts(Split split, std::int64_t index) const = 0;
};

// Texts as the config names them, or pairs that are made up. Makes what the codec lacks, a tokenizer, from both sides
// of the training texts. Errors: exit codes 2 and 3.
std::shared_ptr<const PairDataset> load_pairs(const ExperimentConfig& config, bool offline, Codec codec);

// Rows of a batch. `mark` stands behind a source, before a target, and is what follows its last token. What is longer
// than `context` tokens is cut off, the mark of a target too.
PairRows to_rows(const std::vector<EncodedPair>& pairs, std::int32_t mark, std::int64_t context);

}  // namespace metaformer
