#pragma once
// Padded batches of labelled texts for a classifier.

#include <optional>
#include <vector>

#include "config/experiment_config.h"
#include "data/encoded.h"
#include "data/epoch_order.h"
#include "data/token_rows.h"

namespace metaformer {

// How batches are made from texts.
struct BatchOptions {
  std::int64_t context = 0;  // longest row, in tokens
  Truncation truncation = Truncation::head;
  double sampling = 0;                          // subword regularisation of training texts (data.tokenizer.sampling)
  double token_removal = 0, token_unknown = 0;  // probabilities, of training texts' tokens
  std::int64_t bucketing = 1;
  PackingConfig packing;

  static BatchOptions of(const ExperimentConfig& config);
};

class LabelledDataset {
 public:
  // Errors (exit code 2): token_unknown with a tokenizer that has no unknown token.
  LabelledDataset(EncodedSplits splits, const BatchOptions& options);

  const Codec& codec() const { return splits_.codec; }
  const nlohmann::ordered_json& description() const { return splits_.description; }
  const std::vector<EncodedText>& texts(Split split) const { return splits_[split]; }
  const std::string& text_digest(Split split) const { return splits_.text_digests[static_cast<std::size_t>(split)]; }
  std::int64_t count(Split split) const { return static_cast<std::int64_t>(texts(split).size()); }
  std::int64_t cut_count() const { return cut_count_; }  // texts that are longer than the context
  double mean_length() const;                            // mean number of tokens of a training text in a batch

  // Rows first ... first + rows of step's global order, EpochOrder; a step has `rows_per_step`. Noise and resampling of
  // a text are functions of (seed, its place in the sequence of epochs).
  LabelledRows training_rows(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step, std::int64_t first,
                             std::int64_t rows) const;

  // With data.packing, in place of training_rows: packs first ... first + rows of the endless series of epochs, each a
  // row. Every epoch has `packs_of_epoch` packs.
  LabelledRows training_packs(std::uint64_t seed, std::int64_t first, std::int64_t rows) const;
  bool is_packed() const { return packs_.has_value(); }
  std::int64_t packs_of_epoch() const { return packs_->packs(); }

  // A split by descending length: there is little padding, and the memory of a batch suffices for the next one.
  LabelledRows rows(Split split, std::int64_t first, std::int64_t rows) const;

  // For each place of texts(split), the index of its text in the order of the source.
  const std::vector<std::size_t>& source_order(Split split) const {
    return source_order_[static_cast<std::size_t>(split)];
  }

  // Training texts first ... first + rows, without noise, of an order at random that has each once: a function of the
  // seed. Fewer where it ends.
  LabelledRows distinct_training_rows(std::uint64_t seed, std::int64_t first, std::int64_t rows) const;

  // Rows drawn at random: a function of (seed, index).
  LabelledRows random_rows(Split split, std::uint64_t seed, std::int64_t index, std::int64_t rows) const;

 private:
  std::vector<std::int32_t> noisy_ids(const EncodedText& text, std::uint64_t seed, std::int64_t place) const;
  double expected_length(const EncodedText& text) const;
  std::vector<std::int64_t> lengths() const;
  LabelledRows batch_of(const std::vector<const EncodedText*>& texts) const;

  EncodedSplits splits_;  // validation and test by falling length
  std::array<std::vector<std::size_t>, 3> source_order_;
  BatchOptions options_;
  std::int64_t cut_count_ = 0;
  std::optional<EpochOrder> order_;   // of training texts
  std::optional<PackedOrder> packs_;  // the same
};

}  // namespace metaformer
