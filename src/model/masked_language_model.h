#pragma once
// A model that predicts hidden tokens from those on both sides of them (BERT, Devlin et al. 2019).

#include "model/token_model.h"

namespace metaformer {

// The mask token's id is the vocabulary: the embedding table has a row for it, the logits have none. Where a batch
// names the places of its targets, hidden vectors are [t, d] and logits [t, v], of these alone. Has no state.
class MaskedLanguageModel : public TokenModel {
 public:
  MaskedLanguageModel(const TransformerConfig& config, std::int64_t vocabulary);

  torch::Tensor hidden(const Batch& batch, ModelState* state, Pass& pass) override;
};

}  // namespace metaformer
