#pragma once
// Telling the class of a text.

#include "data/datasets/labelled_dataset.h"
#include "tasks/classification_metrics.h"
#include "tasks/task.h"

namespace metaformer {

class ClassificationTask : public Task {
 public:
  ClassificationTask(const ExperimentConfig& config, bool offline, Codec codec);

  std::shared_ptr<SequenceModel> make_model() const override;
  const Codec& codec() const override { return dataset_.codec(); }
  double tokens_per_step() const override;
  double epochs_per_step() const override;
  void prepare(SequenceModel& model) const override;
  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override;
  void before_evaluation(SequenceModel& model, torch::Device device) const override;
  LossSum loss(SequenceModel& model, const Batch& batch) const override;
  bool has(Split split) const override { return dataset_.count(split) > 0; }
  std::int64_t evaluation_batches(Split split) const override;
  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override;
  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override;
  void score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const override;

  // loss, accuracy, f1 (the mean over the classes), auc, calibration_error, texts; per class: texts that have it, texts
  // predicted to, how many of these are right, f1; confusion: texts by their class and the predicted one. The loss is
  // neither smoothed nor weighted.
  nlohmann::ordered_json metrics(const ScoreSums& sums, Split split) const override;
  // The same of probabilities from elsewhere (an ensemble), with their mean loss.
  nlohmann::ordered_json metrics_of(const ClassProbabilities& probabilities, double loss) const;

  // A digest of the texts of a split, in the order of the source.
  const std::string& text_digest(Split split) const { return dataset_.text_digest(split); }

  // What `score` gathered over all of evaluation_batch, with the texts in the order of the source.
  ClassProbabilities probabilities_of(const ScoreSums& sums, Split split) const;

  void check_data() const override;
  // By train.selection_metric. An AUC that batches of one class do not have counts as 0.
  double selection_error(const nlohmann::ordered_json& metrics) const override;
  std::vector<std::string> headline() const override;
  nlohmann::ordered_json data_description() const override { return dataset_.description(); }
  std::string data_summary() const override;

 private:
  void require(Split split) const;
  std::int64_t class_count() const { return static_cast<std::int64_t>(codec().labels.size()); }
  std::int64_t rows_per_step() const { return config_.train.batch_size * config_.train.accumulate; }

  ExperimentConfig config_;
  LabelledDataset dataset_;
  torch::Tensor class_weights_v_;  // undefined: none
};

}  // namespace metaformer
