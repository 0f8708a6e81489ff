#pragma once
// Rows of several documents, or of pieces of long ones (data.packing): what the tasks over a text have in common of
// them.

#include "data/datasets/packed_documents.h"
#include "tasks/text_stream.h"

namespace metaformer {

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

}  // namespace metaformer
