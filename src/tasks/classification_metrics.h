#pragma once
// What is reported of a classifier.

#include "config/classification_config.h"
#include "data/datasets/labelled_dataset.h"
#include "tasks/class_probabilities.h"
#include "tasks/metrics.h"

namespace metaformer {

// More classes are not reported one by one, and more than so many have no confusion table.
constexpr std::size_t most_reported_classes = 20, most_confused_classes = 5000;

// Reports loss (neither smoothed nor weighted), accuracy, f1 (macro_f1), auc (roc_auc), calibration_error, texts; of up
// to most_reported_classes also `classes`: of each texts that have it, texts predicted to have it, how many of these
// are right, f1. The tables: `classes`, and `confusion`: texts by their class and the predicted one.
class ClassificationMetrics : public Metrics {
 public:
  ClassificationMetrics(std::shared_ptr<const LabelledDataset> dataset, SelectionMetric selection);

  void score(const torch::Tensor& logits_lv, const Batch& batch, ScoreSums& sums) const override;
  nlohmann::ordered_json report(const ScoreSums& sums, Split split) const override;
  nlohmann::ordered_json tables(const ScoreSums& sums) const override;

  // The same of probabilities from elsewhere (an ensemble), with their mean loss.
  nlohmann::ordered_json report_of(const ClassProbabilities& probabilities, double loss) const;
  nlohmann::ordered_json tables_of(const ClassProbabilities& probabilities) const;

  // The confusion table as CSV: a row for each class, a column for each predicted one, both with its label.
  std::string confusion_csv(const ScoreSums& sums) const;

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
