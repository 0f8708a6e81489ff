#pragma once
// Describes labelled texts.

#include "config/experiment_config.h"
#include "data/datasets/labelled_dataset.h"
#include "tasks/task_data.h"

namespace metaformer {

// Training texts by class.
std::vector<std::int64_t> training_counts(const LabelledDataset& dataset);

class ClassificationData : public TaskData {
 public:
  ClassificationData(std::shared_ptr<const LabelledDataset> dataset, const ExperimentConfig& config)
      : dataset_(std::move(dataset)), config_(config) {}

  const Codec& codec() const override { return dataset_->codec(); }
  nlohmann::ordered_json description() const override { return dataset_->description(); }
  std::string summary() const override;
  void check() const override;

 private:
  std::shared_ptr<const LabelledDataset> dataset_;
  ExperimentConfig config_;
};

}  // namespace metaformer
