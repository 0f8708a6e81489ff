#pragma once
// A network as a predictor.

#include "model/sequence_model.h"
#include "tasks/predictor.h"

namespace metaformer {

class NetworkPredictor : public Predictor {
 public:
  // Keeps a reference to the model.
  explicit NetworkPredictor(SequenceModel& model) : model_(model) {}

  torch::Tensor logits(const Batch& batch) const override { return model_.evaluate(batch); }

 private:
  SequenceModel& model_;
};

}  // namespace metaformer
