#pragma once
// Batches over a text: windows in any order, ordered streams, packed documents.

#include "config/experiment_config.h"
#include "data/text_dataset.h"
#include "tasks/task.h"
#include "text/tokenizer.h"

namespace metaformer {

// What the batches of all tasks over a text have in common.
class TextStream : public BatchStream {
 public:
  TextStream(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset)
      : config_(config), dataset_(std::move(dataset)) {}

  double tokens_per_step() const override { return static_cast<double>(rows_per_step() * context()); }

 protected:
  const ExperimentConfig& config() const { return config_; }
  const TextDataset& dataset() const { return *dataset_; }
  std::int64_t context() const { return context_of(config_.model); }
  std::int64_t rows() const { return config_.train.batch_size; }
  std::int64_t rows_per_step() const { return rows() * config_.train.accumulate; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(config_.train.seed); }

 private:
  ExperimentConfig config_;
  std::shared_ptr<const TextDataset> dataset_;
};

// Rows of several documents, or of pieces of long ones (data.packing): what the tasks over a text have in common of
// them.
class DocumentStream : public TextStream {
 public:
  double tokens_per_step() const override;
  double epochs_per_step() const override;
  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override;
  std::int64_t evaluation_batches(Split split) const override;
  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override;
  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override;
  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override;

 protected:
  // `pieces`: of both splits, as PackedDocuments takes them.
  DocumentStream(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset,
                 std::array<std::vector<TextPiece>, 2> pieces);

  const PackingOptions& options() const { return options_; }

  // The rows first_row, first_row + 1, ... of a step.
  virtual Batch training(const std::vector<TextPack>& packs, std::int64_t step, std::int64_t first_row,
                         torch::Device device) const = 0;
  // Documents see nothing of each other, and tokens weigh the same.
  virtual Batch evaluation(const std::vector<TextPack>& packs, Split split, torch::Device device) const = 0;

 private:
  std::vector<TextPack> evaluation_packs(Split split, std::int64_t index) const;

  PackingOptions options_;
  PackedDocuments documents_;
};

// The batches of a language model over a text.

// Windows at random places, of which an epoch has as many tokens as the split. With model.memory or model.carry_state
// the text in order: a row of a step goes on where that row of the step before ended. With data.packing rows are packs
// of documents, in another order in every epoch, and evaluations see each document alone. Errors (exit code 3): the
// text is too short for that.
std::shared_ptr<const BatchStream> make_text_stream(const ExperimentConfig& config,
                                                    std::shared_ptr<const TextDataset> dataset);

// The batches of a masked language model over a text.

// Windows at random places, of which an epoch has as many tokens as the split; with data.packing packs of documents, in
// another order in every epoch. An evaluation has every token of the split in one row, and always the same targets.
// Keeps a reference to the tokenizer.
std::shared_ptr<const BatchStream> make_masked_stream(const ExperimentConfig& config,
                                                      std::shared_ptr<const TextDataset> dataset,
                                                      const Tokenizer& tokenizer);

}  // namespace metaformer
