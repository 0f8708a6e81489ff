#pragma once
// What is reported of a classifier.

#include "config/classification_config.h"
#include "data/datasets/labelled_dataset.h"
#include "tasks/class_probabilities.h"
#include "tasks/metrics.h"

namespace metaformer {

// Reports loss, accuracy, f1 (the mean over the classes), auc, calibration_error, texts; per class: texts that have it,
// texts predicted to have it, how many of these are right, f1; confusion: texts by their class and the predicted one.
// The loss is neither smoothed nor weighted.
class ClassificationMetrics : public Metrics {
 public:
  ClassificationMetrics(std::shared_ptr<const LabelledDataset> dataset, SelectionMetric selection);

  void score(const torch::Tensor& logits_lv, const Batch& batch, ScoreSums& sums) const override;
  nlohmann::ordered_json report(const ScoreSums& sums, Split split) const override;

  // The same of probabilities from elsewhere (an ensemble), with their mean loss.
  nlohmann::ordered_json report_of(const ClassProbabilities& probabilities, double loss) const;

  // By the metric of the config. An AUC that batches of one class do not have counts as 0.
  double selection_error(const nlohmann::ordered_json& report) const override;
  std::vector<std::string> headline() const override;

  const std::vector<std::string>& labels() const { return dataset_->codec().labels; }

  // A digest of the texts of a split, in the order of the source.
  const std::string& text_digest(Split split) const { return dataset_->text_digest(split); }

  // What `score` gathered over all evaluation batches of a split, with the texts in the order of the source.
  ClassProbabilities probabilities_of(const ScoreSums& sums, Split split) const;

 private:
  std::shared_ptr<const LabelledDataset> dataset_;
  SelectionMetric selection_;
};

}  // namespace metaformer
