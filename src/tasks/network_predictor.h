#pragma once
// A network as a predictor.

#include "model/sequence_model.h"
#include "tasks/predictor.h"

namespace metaformer {

class NetworkPredictor : public Predictor {
 public:
  // Keeps a reference to the model.
  explicit NetworkPredictor(SequenceModel& model) : model_(model) {}

  // On the CPU threads share slices of rows, so that what they compute stays in their caches. The slices, and so the
  // logits, do not depend on the number of threads.
  torch::Tensor logits(const Batch& batch) const override;

 private:
  SequenceModel& model_;
};

}  // namespace metaformer
