#pragma once
// Adapts a model to the training data other than by gradients. By default does nothing.

#include "model/sequence_model.h"

namespace metaformer {

class ModelAdaptation {
 public:
  virtual ~ModelAdaptation() = default;

  // For a model with its initial weights.
  virtual void before_training(SequenceModel& model) const { (void)model; }

  // A function of the model's weights.
  virtual void before_evaluation(SequenceModel& model, torch::Device device) const { (void)model, (void)device; }
};

}  // namespace metaformer
