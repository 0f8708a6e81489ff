#include "model/sequence_model.h"

#include "attention/mixer.h"
#include "base/error.h"

namespace metaformer {

torch::Tensor SequenceModel::evaluate(const Batch& batch, ModelState* state) {
  Pass pass;
  return forward(batch, state, pass);
}

torch::Tensor SequenceModel::hidden(const Batch&, ModelState*, Pass&) {
  throw Error(ExitCode::failure, "this model has no hidden vectors that logits of tokens are made of");
}

torch::Tensor SequenceModel::logits_of(const torch::Tensor&) const {
  throw Error(ExitCode::failure, "this model has no logits of single tokens");
}

std::unique_ptr<ModelState> SequenceModel::new_state(std::int64_t, std::int64_t) const {
  throw Error(ExitCode::failure, "this model has no state to continue from");
}

static std::int64_t count_of(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

ParameterCounts count_parameters(const torch::nn::Module& model) {
  ParameterCounts counts{.all = count_of(model)};
  for (const auto& module : model.modules(/*include_self=*/false))
    if (dynamic_cast<const Mixer*>(module.get()) != nullptr) counts.mixers += count_of(*module);
  return counts;
}

}  // namespace metaformer
