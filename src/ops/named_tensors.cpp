#include "ops/named_tensors.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

std::string shape_text(at::IntArrayRef shape) {
  std::vector<std::string> sizes;
  for (const auto size : shape) sizes.push_back(size < 0 ? "any" : std::to_string(size));
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

void copy_by_name(const NamedTensors& saved, const NamedTensors& targets, const std::string& source) {
  const torch::NoGradGuard no_grad;
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::usage, fmt::format("{}: belongs to another architecture: {}", source, what));
  };
  std::map<std::string, torch::Tensor> rest(saved.begin(), saved.end());
  // Everything is checked before anything is changed.
  for (const auto& [name, target] : targets) {
    const auto found = rest.find(name);
    if (found == rest.end()) fail(fmt::format("it has no tensor {}", in_quotes(name)));
    if (found->second.sizes() != target.sizes())
      fail(fmt::format("its {} has shape {}, this model's has {}", in_quotes(name), shape_text(found->second.sizes()),
                       shape_text(target.sizes())));
    rest.erase(found);
  }
  if (!rest.empty()) fail(fmt::format("its tensor {} is not part of this model", in_quotes(rest.begin()->first)));
  const std::map<std::string, torch::Tensor> all(saved.begin(), saved.end());
  for (const auto& [name, target] : targets) torch::Tensor(target).copy_(all.at(name));
}

NamedTensors named_state(const torch::nn::Module& model) {
  NamedTensors named;
  for (const auto& parameter : model.named_parameters()) named.emplace_back(parameter.key(), parameter.value());
  for (const auto& buffer : model.named_buffers()) named.emplace_back(buffer.key(), buffer.value());
  return named;
}

}  // namespace metaformer
