#include "model/masked_language_model.h"

#include "base/error.h"

namespace metaformer {

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config, std::int64_t vocabulary)
    : TokenModel(config, vocabulary, /*marks=*/1, /*causal=*/false) {}

torch::Tensor MaskedLanguageModel::hidden(const Batch& batch, ModelState* state, Pass& pass) {
  if (state != nullptr) throw Error(ExitCode::failure, "a masked language model has no state to continue from");
  return wanted_rows(transformer().forward(batch, nullptr, pass), batch);
}

}  // namespace metaformer
