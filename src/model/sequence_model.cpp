#include "model/sequence_model.h"

#include <fmt/format.h>

#include "attention/mixer.h"
#include "base/error.h"
#include "base/text.h"

namespace metaformer {

void fail_to_continue(const std::string& source, const std::string& what) {
  throw Error(ExitCode::usage, fmt::format("{}: cannot go on from it: {}", source, what));
}

void require_shape(const std::string& source, const std::string& name, const torch::Tensor& tensor,
                   at::IntArrayRef expected) {
  bool fits = tensor.dim() == std::ssize(expected);
  for (std::size_t i = 0; fits && i < expected.size(); ++i)
    fits = expected[i] == any_size || tensor.size(static_cast<std::int64_t>(i)) == expected[i];
  if (!fits)
    fail_to_continue(source, fmt::format("{} has shape {}, and this model expects {}", in_quotes(name),
                                         shape_text(tensor.sizes()), shape_text(expected)));
}

std::int64_t saved_length(const std::string& source, const std::string& name, const torch::Tensor& tensor) {
  constexpr std::int64_t most = std::int64_t{1} << 53;
  require_shape(source, name, tensor, {});
  if (!tensor.is_floating_point() && tensor.scalar_type() != torch::kBool)
    if (const auto length = tensor.item<std::int64_t>(); length >= 0 && length <= most) return length;
  fail_to_continue(source, fmt::format("{} is {}, and a number of tokens is a whole number from 0 to {}",
                                       in_quotes(name), tensor.item<double>(), most));
}

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
