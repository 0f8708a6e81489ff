#pragma once
// What the batches of all tasks over a text have in common.

#include "config/experiment_config.h"
#include "data/datasets/text_dataset.h"
#include "tasks/batch_stream.h"

namespace metaformer {

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

}  // namespace metaformer
