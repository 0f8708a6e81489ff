#pragma once
// train.overfit_batch: a task whose every step and evaluation is the first step's batch. A network and an optimiser
// that work memorise it, so the loss must fall to nearly 0 (as far as the batch does not contradict itself).

#include "tasks/task.h"

namespace metaformer {

class OneBatchTask : public Task {
 public:
  OneBatchTask(std::unique_ptr<Task> whole, std::int64_t accumulate)
      : whole_(std::move(whole)), accumulate_(accumulate) {}

  std::shared_ptr<SequenceModel> make_model() const override { return whole_->make_model(); }
  const Codec& codec() const override { return whole_->codec(); }
  double tokens_per_step() const override { return whole_->tokens_per_step(); }
  void prepare(SequenceModel& model) const override { whole_->prepare(model); }
  Batch training_batch(std::int64_t, std::int64_t micro, torch::Device device) const override {
    return whole_->training_batch(0, micro, device);
  }
  LossSum loss(SequenceModel& model, const Batch& batch) const override { return whole_->loss(model, batch); }
  std::int64_t evaluation_batches(Split) const override { return accumulate_; }
  Batch evaluation_batch(Split, std::int64_t index, torch::Device device) const override {
    return whole_->training_batch(0, index, device);
  }
  Batch random_batch(Split, std::int64_t index, torch::Device device) const override {
    return whole_->training_batch(0, index % accumulate_, device);
  }
  void score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const override {
    whole_->score(model, batch, sums);
  }
  nlohmann::ordered_json metrics(const ScoreSums& sums, Split) const override {
    return whole_->metrics(sums, Split::train);
  }
  double selection_error(const nlohmann::ordered_json& metrics) const override {
    return whole_->selection_error(metrics);
  }
  std::vector<std::string> headline() const override { return whole_->headline(); }
  nlohmann::ordered_json data_description() const override { return whole_->data_description(); }
  std::string data_summary() const override { return "only the first batch of: " + whole_->data_summary(); }

 private:
  std::unique_ptr<Task> whole_;
  std::int64_t accumulate_;
};

}  // namespace metaformer
