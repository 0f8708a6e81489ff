#pragma once
// Finding the class of a text (made by make_task): metrics and recalibration.

#include <functional>
#include <memory>
#include <vector>

#include "config/data_config.h"
#include "config/experiment_config.h"
#include "data/labelled.h"
#include "model/classifier.h"
#include "tasks/class_probabilities.h"
#include "tasks/task.h"

namespace metaformer {

// task.head.recalibrate. A classifier is trained on noisy texts and with dropout, and evaluated without. Its
// logits then have an offset that differs from run to run, so that one class is predicted more often than it occurs.

// The shift s_v for which the mean of softmax(logits_bv + s_v) is the mean of targets_bv, rows that sum to 1, both
// weighted by weights_b: cross-entropy's minimum in a bias. By iterative scaling (Darroch and Ratcliff 1972), float64.
// 0 for classes that the targets never name.
torch::Tensor calibrating_shift(const torch::Tensor& logits_bv, const torch::Tensor& targets_bv,
                                const torch::Tensor& weights_b);

// Texts `first` ... `first` + `rows` of the training split in an order at random, without noise.
using TrainingTexts = std::function<Batch(std::int64_t first, std::int64_t rows)>;

// Shifts the model's logits so that training's loss (its smoothing, and weights_v by class unless undefined), over
// 4,096 different training texts, or all `count` of them where there are fewer, without noise and dropout, is at its
// minimum in the shift. The same texts every time. A network that diverged gets no shift. Goes on when a signal asks to
// stop: the checkpoint that is then saved needs the shift.
void recalibrate(Classifier& model, const TrainingTexts& texts, std::int64_t count, const ExperimentConfig& config,
                 const torch::Tensor& weights_v, torch::Device device);

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
