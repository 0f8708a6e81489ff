#include "model/transformer_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr const char* length_name = "length";
constexpr const char* place_name = "place";
constexpr const char* segments_name = "segments";

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
