#pragma once
// The batches that a task reads.

#include "data/token_rows.h"
#include "model/batch.h"

namespace metaformer {

class BatchStream {
 public:
  virtual ~BatchStream() = default;

  virtual double tokens_per_step() const = 0;  // on average; padding does not count

  // The fraction of the training split that a step sees; 0 where epochs have no meaning.
  virtual double epochs_per_step() const { return 0; }

  // Before training. Errors (exit code 3): the training split is too short for a step.
  virtual void check_training() const {}

  // Forward pass `micro` (0 ... accumulate - 1) of a step: a function of (seed, step, micro) only.
  virtual Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const = 0;

  virtual bool has(Split split) const { return split != Split::test; }

  // The split of the data that the batches of `split` come from.
  virtual Split source_of(Split split) const { return split; }

  // A split in deterministic batches that hold every target once. Errors (exit code 2): the data has no such split.
  virtual std::int64_t evaluation_batches(Split split) const = 0;
  virtual Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const = 0;

  // Tokens of such a batch, without padding.
  virtual std::int64_t evaluation_tokens(Split split, std::int64_t index) const = 0;

  // Random batches of training size, the same at every call (nanoGPT's estimate_loss).
  virtual Batch random_batch(Split split, std::int64_t index, torch::Device device) const = 0;
};

}  // namespace metaformer
