#pragma once
// The objective of language models: cross-entropy of the next token.

#include "tasks/batches.h"
#include "tasks/objective.h"

namespace metaformer {

class TokenObjective : public Objective {
 public:
  torch::Tensor loss(const torch::Tensor& logits_bcv, const Batch& batch) const override {
    return token_loss(logits_bcv, batch);
  }
};

}  // namespace metaformer
