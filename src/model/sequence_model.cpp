#include "model/sequence_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/mixer.h"
#include "base/text.h"

namespace metaformer {

bool can_decode(const torch::nn::Module& model) {
  const auto weights = model.parameters();
  return std::all_of(weights.begin(), weights.end(), [](const torch::Tensor& weight) {
    return weight.is_cpu() && weight.scalar_type() == torch::kFloat && weight.is_contiguous();
  });
}

std::int64_t ModelState::bytes() const {
  std::int64_t total = 0;
  for (const auto& [name, tensor] : tensors())
    if (tensor.dim() > 0) total += static_cast<std::int64_t>(tensor.nbytes());
  return total;
}

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

torch::Tensor SavedTensors::take(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail_to_continue(source_, fmt::format("it has no {}", in_quotes(name)));
  auto tensor = found->second;
  tensors_.erase(found);
  return tensor;
}

torch::Tensor SavedTensors::take(const std::string& name, at::IntArrayRef shape) {
  const auto tensor = take(name);
  require_shape(source_, name, tensor, shape);
  return tensor.to(device_, /*non_blocking=*/false, /*copy=*/true);
}

std::int64_t SavedTensors::take_length(const std::string& name) {
  constexpr std::int64_t most = std::int64_t{1} << 53;
  const auto tensor = take(name);
  require_shape(source_, name, tensor, {});
  if (!tensor.is_floating_point() && tensor.scalar_type() != torch::kBool)
    if (const auto length = tensor.item<std::int64_t>(); length >= 0 && length <= most) return length;
  fail_to_continue(source_, fmt::format("{} is {}, and a number of tokens is a whole number from 0 to {}",
                                        in_quotes(name), tensor.item<double>(), most));
}

NamedTensors SavedTensors::take_below(const std::string& prefix) {
  NamedTensors below;
  std::erase_if(tensors_, [&](const auto& entry) {
    const bool is_below = entry.first.starts_with(prefix);
    if (is_below) below.emplace_back(entry.first.substr(prefix.size()), entry.second);
    return is_below;
  });
  return below;
}

void SavedTensors::require_empty() const {
  if (!tensors_.empty())
    fail_to_continue(source_, fmt::format("this model has no {}", in_quotes(tensors_.begin()->first)));
}

torch::Tensor SequenceModel::evaluate(const Batch& batch, ModelState* state) {
  Pass pass;
  return forward(batch, state, pass);
}

static std::int64_t count_of(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters())
    if (parameter.requires_grad()) count += parameter.numel();
  return count;
}

ParameterCounts count_parameters(const torch::nn::Module& model) {
  ParameterCounts counts{.all = count_of(model)};
  for (const auto& module : model.modules(/*include_self=*/false))
    if (dynamic_cast<const Mixer*>(module.get()) != nullptr) counts.mixers += count_of(*module);
  return counts;
}

}  // namespace metaformer
