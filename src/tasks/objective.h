#pragma once
// The loss that a task minimises.

#include "model/batch.h"

namespace metaformer {

class Objective {
 public:
  virtual ~Objective() = default;

  // The loss of a model's logits for a batch, summed over its targets: a scalar on the device, at least float32. Sums
  // and batch.weight can be added up over batches and processes.
  virtual torch::Tensor loss(const torch::Tensor& logits, const Batch& batch) const = 0;
};

}  // namespace metaformer
