#pragma once
// Predicting the next token of a text.

#include "data/datasets/text_dataset.h"
#include "tasks/task.h"

namespace metaformer {

class LanguageModelTask : public Task {
 public:
  LanguageModelTask(const ExperimentConfig& config, bool offline, Codec codec);

  std::shared_ptr<SequenceModel> make_model() const override;
  const Codec& codec() const override { return codec_; }
  double tokens_per_step() const override;
  double epochs_per_step() const override;  // windows are drawn at random: as many tokens as the split has
  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override;
  LossSum loss(SequenceModel& model, const Batch& batch) const override;
  std::int64_t evaluation_batches(Split split) const override;
  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override;
  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override;
  void score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const override;
  nlohmann::ordered_json metrics(const ScoreSums& sums, Split split) const override;
  nlohmann::ordered_json data_description() const override;
  std::string data_summary() const override;

 private:
  const torch::Tensor& training_tokens(torch::Device device) const;

  // Nothing where the tokenizer has no unknown token. The unknown is easily predicted: the metrics tell how much it is.
  std::optional<double> unknown_share(Split split) const;
  double unknown_character_fraction(Split split) const;

  ExperimentConfig config_;
  Corpus corpus_;
  Codec codec_;
  TextDataset dataset_;
  mutable torch::Tensor
      training_tokens_;  // int, where batches were last asked for; on the CPU the dataset's own memory
};

}  // namespace metaformer
