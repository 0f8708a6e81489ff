#include "model/transformer_state.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr const char* length_name = "length";

std::string prefix_of(std::size_t block) { return fmt::format("blocks.{}.", block); }

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw Error(ExitCode::usage, fmt::format("{}: cannot go on from it: {}", source, what));
}

}  // namespace

TransformerState::TransformerState(std::int64_t layers, std::int64_t batch, std::int64_t capacity, torch::Device device)
    : batch_(batch), mixers_(static_cast<std::size_t>(layers), MixerState(capacity, device)) {}

TransformerState& TransformerState::of(ModelState& state) {
  auto* own = dynamic_cast<TransformerState*>(&state);
  if (own == nullptr) throw Error(ExitCode::failure, "a transformer was given the state of another kind of model");
  return *own;
}

void TransformerState::reset() {
  length_ = 0;
  for (auto& mixer : mixers_) mixer.reset();
}

NamedTensors TransformerState::tensors() const {
  NamedTensors all = {{length_name, torch::tensor(length_)}};
  for (std::size_t block = 0; block < mixers_.size(); ++block)
    for (const auto& [name, tensor] : mixers_[block].tensors()) all.emplace_back(prefix_of(block) + name, tensor);
  return all;
}

void TransformerState::load(const NamedTensors& saved, const std::string& source) {
  std::optional<std::int64_t> length;
  std::vector<NamedTensors> of_blocks(mixers_.size());
  for (const auto& [name, tensor] : saved) {
    std::size_t block = 0;
    while (block < mixers_.size() && !name.starts_with(prefix_of(block))) ++block;
    if (name == length_name)
      length = tensor.item<std::int64_t>();
    else if (block == mixers_.size())
      fail(source, fmt::format("this model of {} blocks has no {}", mixers_.size(), in_quotes(name)));
    else if (tensor.dim() < 2 || tensor.size(0) != batch_)
      fail(source, fmt::format("{} is not of {} sequences", in_quotes(name), batch_));
    else
      of_blocks[block].emplace_back(name.substr(prefix_of(block).size()), tensor);
  }
  if (!length) fail(source, fmt::format("it has no {}", in_quotes(length_name)));
  auto loaded = mixers_;
  for (std::size_t block = 0; block < mixers_.size(); ++block) loaded[block].load(of_blocks[block], source);
  mixers_ = std::move(loaded);
  length_ = *length;
}

std::int64_t TransformerState::bytes() const {
  std::int64_t total = 0;
  for (const auto& mixer : mixers_) total += mixer.bytes();
  return total;
}

}  // namespace metaformer
