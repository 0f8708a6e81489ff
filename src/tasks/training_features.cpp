#include "tasks/training_features.h"

#include "base/signals.h"

namespace metaformer {

std::vector<LabelledFeatures> training_features(const BatchStream& stream, const RowFeatures& row_features) {
  std::vector<LabelledFeatures> texts;
  const auto batches = stream.evaluation_batches(Split::train);
  for (std::int64_t i = 0; i < batches; ++i) {
    throw_if_stopped();
    const auto batch = stream.evaluation_batch(Split::train, i, torch::kCPU);
    auto rows = row_features(batch);
    const auto* labels = batch.labels_l.data_ptr<std::int64_t>();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      rows[row].shrink_to_fit();
      texts.push_back({.features = std::move(rows[row]), .label = labels[row]});
    }
  }
  return texts;
}

}  // namespace metaformer
