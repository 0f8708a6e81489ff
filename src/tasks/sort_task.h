#pragma once
// Sorting lists of numbers (minGPT): a causal model continues a list with its sorted copy.

#include "data/datasets/sort_dataset.h"
#include "tasks/task.h"

namespace metaformer {

class SortTask : public Task {
 public:
  explicit SortTask(const ExperimentConfig& config);

  std::shared_ptr<SequenceModel> make_model() const override;
  const Codec& codec() const override { return codec_; }
  double tokens_per_step() const override;
  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override;
  LossSum loss(SequenceModel& model, const Batch& batch) const override;
  std::int64_t evaluation_batches(Split split) const override;
  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override;
  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override;
  void score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const override;

  // exact_match: share of lists whose every sorted number is the likeliest. Each is predicted from the true numbers
  // before it, so that this is also the share that greedy generation sorts.
  nlohmann::ordered_json metrics(const ScoreSums& sums, Split split) const override;
  std::vector<std::string> headline() const override { return {"exact_match"}; }
  nlohmann::ordered_json data_description() const override;
  std::string data_summary() const override;

 private:
  std::int64_t row_length() const { return 2 * config_.data.sort.length - 1; }

  ExperimentConfig config_;
  SortDataset dataset_;
  Codec codec_;
};

}  // namespace metaformer
