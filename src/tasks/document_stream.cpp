#include "tasks/document_stream.h"

#include <algorithm>

#include "tasks/batches.h"

namespace metaformer {

static const PackingConfig& packing_of(const ExperimentConfig& config) { return text_data_of(config.task)->packing; }

DocumentStream::DocumentStream(const ExperimentConfig& config, std::shared_ptr<const TextDataset> dataset,
                               std::array<std::vector<TextPiece>, 2> pieces)
    : TextStream(config, std::move(dataset)),
      options_(*packing_options(packing_of(config))),
      documents_(std::move(pieces), context(), packing_of(config)) {}

double DocumentStream::tokens_per_step() const {
  return static_cast<double>(documents_.tokens(Split::train)) * epochs_per_step();
}

double DocumentStream::epochs_per_step() const {
  return static_cast<double>(rows_per_step()) / static_cast<double>(documents_.packs(Split::train));
}

Batch DocumentStream::training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const {
  const auto first_row = micro * rows();
  const auto packs = documents_.packs_at(Split::train, seed(), step * rows_per_step() + first_row, rows());
  return training(packs, step, first_row, device);
}

std::int64_t DocumentStream::evaluation_batches(Split split) const {
  const auto rows = evaluation_rows(context()), packs = documents_.packs(split);
  return (packs + rows - 1) / rows;
}

std::vector<TextPack> DocumentStream::evaluation_packs(Split split, std::int64_t index) const {
  const auto first = index * evaluation_rows(context());
  const auto rows = std::min(evaluation_rows(context()), documents_.packs(split) - first);
  return documents_.packs_at(split, /*seed=*/0, first, rows);
}

Batch DocumentStream::evaluation_batch(Split split, std::int64_t index, torch::Device device) const {
  return evaluation(evaluation_packs(split, index), split, device);
}

std::int64_t DocumentStream::evaluation_tokens(Split split, std::int64_t index) const {
  std::int64_t tokens = 0;
  for (const auto& pack : evaluation_packs(split, index))
    for (const auto& piece : pack) tokens += piece.length;
  return tokens;
}

Batch DocumentStream::random_batch(Split split, std::int64_t index, torch::Device device) const {
  return evaluation(documents_.random_packs(split, seed(), index, rows()), split, device);
}

}  // namespace metaformer
