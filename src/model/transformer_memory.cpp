#include "model/transformer_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace metaformer {

static constexpr const char* segments_name = "segments";

static std::string name_of(std::size_t block) { return fmt::format("blocks.{}", block); }

std::int64_t TransformerMemory::length() const {
  return blocks_bmd_.front().defined() ? blocks_bmd_.front().size(1) : 0;
}

void TransformerMemory::reset() {
  for (auto& block : blocks_bmd_) block = torch::Tensor();
  segments_bm_ = torch::Tensor();
}

NamedTensors TransformerMemory::tensors() const {
  NamedTensors all;
  for (std::size_t block = 0; block < blocks_bmd_.size(); ++block)
    if (blocks_bmd_[block].defined()) all.emplace_back(name_of(block), blocks_bmd_[block]);
  if (segments_bm_.defined()) all.emplace_back(segments_name, segments_bm_);
  return all;
}

void TransformerMemory::load(const NamedTensors& saved, const std::string& source) {
  TransformerMemory loaded(std::ssize(blocks_bmd_), width_, capacity_, device_);
  auto rows = any_size, length = any_size;  // those of the first tensor, then the same in all others
  for (const auto& [name, tensor] : saved) {
    std::size_t block = 0;
    while (block < blocks_bmd_.size() && name != name_of(block)) ++block;
    const bool is_of_block = block < blocks_bmd_.size();
    if (!is_of_block && name != segments_name)
      fail_to_continue(source,
                       fmt::format("a model of {} blocks does not remember {}", blocks_bmd_.size(), in_quotes(name)));
    require_shape(source, name, tensor, is_of_block ? std::vector{rows, length, width_} : std::vector{rows, length});
    rows = tensor.size(0);
    length = tensor.size(1);
    if (length > capacity_)
      fail_to_continue(source,
                       fmt::format("{} holds {} tokens, and model.memory is {}", in_quotes(name), length, capacity_));
    // A copy: what was read from a file is part of a larger buffer.
    auto& own = is_of_block ? loaded.blocks_bmd_[block] : loaded.segments_bm_;
    own = tensor.to(device_, /*non_blocking=*/false, /*copy=*/true);
  }
  const auto count = std::count_if(loaded.blocks_bmd_.begin(), loaded.blocks_bmd_.end(),
                                   [](const auto& of_block) { return of_block.defined(); });
  if (!saved.empty() && count != std::ssize(blocks_bmd_))
    fail_to_continue(source, fmt::format("it is not of {} blocks", blocks_bmd_.size()));
  *this = std::move(loaded);
}

std::int64_t TransformerMemory::bytes() const {
  std::int64_t total = 0;
  for (const auto& [name, tensor] : tensors()) total += static_cast<std::int64_t>(tensor.nbytes());
  return total;
}

torch::Tensor TransformerMemory::newest(const torch::Tensor& before, const torch::Tensor& x) const {
  const torch::NoGradGuard no_grad;
  const auto all = before.defined() && x.size(1) < capacity_ ? torch::cat({before, x.detach()}, 1) : x.detach();
  const auto kept = std::min(capacity_, all.size(1));
  return all.narrow(1, all.size(1) - kept, kept).clone(at::MemoryFormat::Contiguous);
}

void TransformerMemory::remember(std::size_t block, const torch::Tensor& x_bcd) {
  blocks_bmd_.at(block) = newest(blocks_bmd_[block], x_bcd);
}

void TransformerMemory::remember_segments(const torch::Tensor& segments_bc) {
  segments_bm_ = newest(segments_bm_, segments_bc);
}

}  // namespace metaformer
