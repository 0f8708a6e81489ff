#include "model/transformer_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
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

namespace {

constexpr const char* length_name = "length";
constexpr const char* place_name = "place";

std::string prefix_of(std::size_t block) { return fmt::format("blocks.{}.", block); }

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw Error(ExitCode::usage, fmt::format("{}: cannot go on from it: {}", source, what));
}

}  // namespace

TransformerState::TransformerState(std::int64_t layers, std::int64_t batch, std::int64_t capacity, std::int64_t memory,
                                   torch::Device device)
    : batch_(batch),
      memory_(memory),
      device_(device),
      mixers_(static_cast<std::size_t>(layers), MixerState(capacity + memory, device)) {}

TransformerState& TransformerState::of(ModelState& state) {
  auto* own = dynamic_cast<TransformerState*>(&state);
  if (own == nullptr) throw Error(ExitCode::failure, "a transformer was given the state of another kind of model");
  return *own;
}

void TransformerState::reset() {
  length_ = place_ = remembered_ = 0;
  segments_be_ = torch::Tensor();
  for (auto& mixer : mixers_) mixer.reset();
}

bool TransformerState::prepare(std::int64_t tokens, std::int64_t context) {
  const bool begins = memory_ > 0 && place_ == context;
  if (begins) {
    remembered_ = std::min(memory_, remembered_ + place_);
    place_ = 0;
    for (auto& mixer : mixers_) mixer.keep_newest(memory_);
    if (segments_be_.defined()) segments_be_ = segments_be_.narrow(1, segments_be_.size(1) - remembered_, remembered_);
  }
  if (place_ + tokens > context)
    throw Error(ExitCode::failure,
                fmt::format("a sequence of {} tokens does not fit model.context {}", place_ + tokens, context));
  return begins;
}

void TransformerState::advance(std::int64_t tokens) {
  length_ += tokens;
  place_ += tokens;
}

void TransformerState::select(const torch::Tensor& rows_b) {
  batch_ = rows_b.size(0);
  if (segments_be_.defined()) segments_be_ = segments_be_.index_select(0, rows_b);
  for (auto& mixer : mixers_) mixer.select(rows_b);
}

torch::Tensor TransformerState::extend_segments(const torch::Tensor& segments_bc) {
  segments_be_ = segments_be_.defined() ? torch::cat({segments_be_, segments_bc}, 1) : segments_bc;
  return segments_be_;
}

NamedTensors TransformerState::tensors() const {
  NamedTensors all = {{length_name, torch::tensor(length_)}, {place_name, torch::tensor(place_)}};
  if (segments_be_.defined()) all.emplace_back(segments_name, segments_be_);
  for (std::size_t block = 0; block < mixers_.size(); ++block)
    for (const auto& [name, tensor] : mixers_[block].tensors()) all.emplace_back(prefix_of(block) + name, tensor);
  return all;
}

void TransformerState::load(const NamedTensors& saved, const std::string& source) {
  std::optional<std::int64_t> length, place;
  torch::Tensor segments_be;
  std::vector<NamedTensors> of_blocks(mixers_.size());
  for (const auto& [name, tensor] : saved) {
    std::size_t block = 0;
    while (block < mixers_.size() && !name.starts_with(prefix_of(block))) ++block;
    if (name == length_name)
      length = tensor.item<std::int64_t>();
    else if (name == place_name)
      place = tensor.item<std::int64_t>();
    else if (name == segments_name)
      segments_be = tensor;
    else if (block == mixers_.size())
      fail(source, fmt::format("this model of {} blocks has no {}", mixers_.size(), in_quotes(name)));
    else if (tensor.dim() < 2 || tensor.size(0) != batch_)
      fail(source, fmt::format("{} is not of {} sequences", in_quotes(name), batch_));
    else
      of_blocks[block].emplace_back(name.substr(prefix_of(block).size()), tensor);
  }
  if (!length) fail(source, fmt::format("it has no {}", in_quotes(length_name)));
  if (!place) fail(source, fmt::format("it has no {}", in_quotes(place_name)));
  auto loaded = mixers_;
  for (std::size_t block = 0; block < mixers_.size(); ++block) loaded[block].load(of_blocks[block], source);
  mixers_ = std::move(loaded);
  length_ = *length;
  place_ = *place;
  remembered_ = std::min(memory_, length_ - place_);
  segments_be_ = segments_be.defined() ? segments_be.to(device_, /*non_blocking=*/false, /*copy=*/true) : segments_be;
}

std::int64_t TransformerState::bytes() const {
  std::int64_t total = 0;
  for (const auto& mixer : mixers_) total += mixer.bytes();
  return total;
}

}  // namespace metaformer
