#include "huggingface/tensor_table.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

TensorTable::TensorTable(const NamedTensors& tensors, std::string source)
    : tensors_(tensors.begin(), tensors.end()), source_(std::move(source)) {}

torch::Tensor TensorTable::take(const std::string& name, at::IntArrayRef shape) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw Error(ExitCode::data, fmt::format("{}: it has no tensor {}", source_, in_quotes(name)));
  const auto tensor = found->second;
  tensors_.erase(found);
  if (tensor.sizes() != shape)
    throw Error(ExitCode::data, fmt::format("{}: its {} has shape [{}], and the config needs [{}]", source_,
                                            in_quotes(name), fmt::join(tensor.sizes(), ", "), fmt::join(shape, ", ")));
  return tensor.to(torch::kCPU, torch::kFloat);
}

void TensorTable::drop(const std::string& suffix) {
  std::erase_if(tensors_, [&](const auto& entry) { return entry.first.ends_with(suffix); });
}

void TensorTable::require_empty() const {
  if (!tensors_.empty())
    throw Error(ExitCode::data, fmt::format("{}: its tensor {} is not part of the model that the config describes",
                                            source_, in_quotes(tensors_.begin()->first)));
}

}  // namespace metaformer
