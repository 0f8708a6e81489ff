#pragma once
// A network as a predictor.

#include <memory>
#include <vector>

#include "model/sequence_model.h"
#include "tasks/predictor.h"

namespace metaformer {

class NetworkPredictor : public Predictor {
 public:
  // Keeps a reference to the model.
  explicit NetworkPredictor(SequenceModel& model) : model_(model) {}

  // On the CPU threads share slices of rows, so that what they compute stays in their caches. The slices, and so the
  // logits, do not depend on the number of threads. A model that remembers goes on where the batch before ended,
  // unless this one begins.
  torch::Tensor logits(const Batch& batch) const override;
  bool remembers() const override { return model_.remembers(); }

 private:
  torch::Tensor logits_of_slice(const Batch& slice, std::size_t number) const;

  SequenceModel& model_;
  // Of every slice of the rows; none for a model without memory.
  mutable std::vector<std::unique_ptr<ModelState>> states_;
};

}  // namespace metaformer
