#pragma once
// Predicting the next token of a text.

#include "train/task.h"

namespace metaformer {

class LanguageModelTask : public Task {
 public:
  LanguageModelTask(const ExperimentConfig& config, bool offline, std::unique_ptr<Tokenizer> tokenizer);

  std::shared_ptr<SequenceModel> make_model() const override;
  const Tokenizer& tokenizer() const override { return dataset_.tokenizer(); }
  std::int64_t tokens_per_step() const override;
  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override;
  LossSum loss(SequenceModel& model, const Batch& batch) const override;
  std::int64_t evaluation_batches(Split split) const override;
  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override;
  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override;
  void score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const override;
  nlohmann::ordered_json metrics(const ScoreSums& sums, Split split) const override;
  nlohmann::ordered_json data_description() const override;

 private:
  std::int64_t evaluation_rows() const;

  ExperimentConfig config_;
  Corpus corpus_;
  TextDataset dataset_;
};

}  // namespace metaformer
