#pragma once
// train.overfit_batch: every step and evaluation sees the first step's batch. A network and an optimiser that work
// memorise it, so the loss must fall to nearly 0 (as far as the batch does not contradict itself).

#include <cmath>
#include <memory>

#include "tasks/batch_stream.h"

namespace metaformer {

class OneBatchStream : public BatchStream {
 public:
  OneBatchStream(std::shared_ptr<const BatchStream> whole, std::int64_t accumulate)
      : whole_(std::move(whole)), accumulate_(accumulate) {}

  double tokens_per_step() const override { return whole_->tokens_per_step(); }
  void check_training() const override { whole_->check_training(); }
  Batch training_batch(std::int64_t, std::int64_t micro, torch::Device device) const override {
    return whole_->training_batch(0, micro, device);
  }
  Split source_of(Split) const override { return Split::train; }
  std::int64_t evaluation_batches(Split) const override { return accumulate_; }
  Batch evaluation_batch(Split, std::int64_t index, torch::Device device) const override {
    return whole_->training_batch(0, index, device);
  }
  std::int64_t evaluation_tokens(Split, std::int64_t) const override {
    return std::llround(tokens_per_step() / static_cast<double>(accumulate_));
  }
  Batch random_batch(Split, std::int64_t index, torch::Device device) const override {
    return whole_->training_batch(0, index % accumulate_, device);
  }

 private:
  std::shared_ptr<const BatchStream> whole_;
  std::int64_t accumulate_;
};

}  // namespace metaformer
