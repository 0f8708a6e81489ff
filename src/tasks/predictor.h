#pragma once
// Computes logits: a network (tasks/network_predictor.h) or the linear baseline (baselines/linear_model.h).

#include "model/batch.h"

namespace metaformer {

class Predictor {
 public:
  virtual ~Predictor() = default;

  // Of a batch of token rows on the predictor's device, without noise: [b, c, v] of a language model; [l, classes] of a
  // classifier, whose softmax are the probabilities of the classes.
  virtual torch::Tensor logits(const Batch& batch) const = 0;

  // Whether a batch goes on where the one before it ended, so that they must come in their order.
  virtual bool remembers() const { return false; }
};

}  // namespace metaformer
