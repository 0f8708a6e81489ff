#include "attention/mixer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

torch::Tensor offset_ce(std::int64_t queries, std::int64_t keys, torch::Device device) {
  const auto options = torch::TensorOptions().dtype(torch::kLong).device(device);
  return torch::arange(keys, options).unsqueeze(0) - torch::arange(keys - queries, keys, options).unsqueeze(1);
}

torch::Tensor offset_ce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device) {
  if (!visibility.place_1.defined()) return offset_ce(queries, keys, device);
  return (torch::arange(keys, visibility.place_1.options()) - visibility.place_1).unsqueeze(0);
}

torch::Tensor visible_bce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device) {
  auto& visible = visibility.last_visible_bce;
  if (visible.defined() && visible.size(1) == queries && visible.size(2) == keys && visible.device() == device)
    return visible;
  visible = torch::Tensor();
  if (visibility.has_segments()) {
    const auto query = visibility.query_segment_bc.unsqueeze(2);
    visible = (query == visibility.key_segment_be.unsqueeze(1)).logical_and(query >= 0);
  }
  const bool cuts_off = visibility.window > 0 && keys > visibility.window;
  const bool has_later_keys = queries > 1 || visibility.place_1.defined();
  if (cuts_off || (visibility.causal && has_later_keys)) {
    const auto offset = offset_ce(visibility, queries, keys, device);
    auto in_reach = visibility.causal ? offset <= 0 : offset < visibility.window;
    if (cuts_off) in_reach = in_reach.logical_and(offset > -visibility.window);
    visible = visible.defined() ? visible.logical_and(in_reach.unsqueeze(0)) : in_reach.unsqueeze(0);
  }
  return visible;
}

Visibility within_window(const Visibility& visibility, std::int64_t window, std::int64_t keys, std::int64_t distances) {
  auto own = visibility;
  own.last_visible_bce = torch::Tensor();
  if (window > 0) own.window = own.window > 0 ? std::min(own.window, window) : window;
  const auto keep_newest = [](torch::Tensor& x, std::int64_t dim, std::int64_t count) {
    if (x.defined() && x.size(dim) > count) x = x.narrow(dim, x.size(dim) - count, count);
  };
  keep_newest(own.score_bias_nce, 2, keys);
  keep_newest(own.key_segment_be, 1, keys);
  keep_newest(own.distance_ld, 0, distances);
  return own;
}

torch::Tensor segment_starts(const torch::Tensor& segments_bc) {
  const auto before_bc = torch::constant_pad_nd(segments_bc, {1, 0}, -1).narrow(1, 0, segments_bc.size(1));
  return (segments_bc != before_bc).logical_and(segments_bc >= 0);
}

torch::Tensor positions_in_segments(const torch::Tensor& segments_bc) {
  const auto place_c = torch::arange(segments_bc.size(1), segments_bc.options());
  const auto position_bc = place_c - std::get<0>(torch::where(segment_starts(segments_bc), place_c, 0).cummax(1));
  return position_bc.masked_fill(segments_bc < 0, 0);
}

torch::Tensor without_padding(const torch::Tensor& y_bcd, const Visibility& visibility) {
  if (!visibility.has_segments()) return y_bcd;
  return y_bcd * (visibility.query_segment_bc >= 0).unsqueeze(2);
}

Visibility self_visibility(bool causal, const torch::Tensor& segment_bc) {
  return {.causal = causal, .query_segment_bc = segment_bc, .key_segment_be = segment_bc};
}

namespace {

constexpr std::int64_t token_dim = -2;
constexpr std::size_t most_slots = 16;

std::string slot_name(std::size_t slot) { return fmt::format("slot_{}", slot); }
std::string kept_name(std::size_t slot) { return fmt::format("kept_{}", slot); }

// The slot whose name is `name`; most_slots if none of the first most_slots has it.
template <class NameOf>
std::size_t slot_named(const std::string& name, const NameOf& name_of) {
  std::size_t slot = 0;
  while (slot < most_slots && name != name_of(slot)) ++slot;
  return slot;
}

std::vector<std::int64_t> with_tokens(const torch::Tensor& like, std::int64_t tokens) {
  auto sizes = like.sizes().vec();
  sizes[sizes.size() - 2] = tokens;
  return sizes;
}

}  // namespace

MixerState::Buffer& MixerState::slot_for(std::size_t slot, const torch::Tensor& like, std::int64_t room) {
  if (slot >= buffers_.size()) buffers_.resize(slot + 1);
  auto& buffer = buffers_[slot];
  if (!buffer.storage.defined()) buffer.storage = torch::zeros(with_tokens(like, room), like.options());
  if (buffer.storage.size(token_dim) != room) {  // from load(), which does not know the window
    const auto newest = std::min(room, buffer.length);
    const auto kept = buffer.storage.narrow(token_dim, buffer.length - newest, newest);
    buffer.storage = torch::empty(with_tokens(kept, room), kept.options());
    buffer.storage.narrow(token_dim, 0, newest).copy_(kept);
    buffer.length = newest;
  }
  if (buffer.storage.sizes().vec() != with_tokens(like, room))
    throw Error(ExitCode::usage, "a state was made by a model of other sizes, or for another number of sequences");
  return buffer;
}

torch::Tensor MixerState::extend(std::size_t slot, const torch::Tensor& fresh, std::int64_t window) {
  const auto count = fresh.size(token_dim);
  const bool forgets = window > 0 && window < capacity_ && !stays_;
  auto& [storage, length] = slot_for(slot, fresh, forgets ? window : capacity_);
  if (place_1_.defined()) {
    storage.index_copy_(token_dim, place_1_, fresh);
    return storage.narrow(token_dim, 0, visible_);
  }
  if (forgets) {
    const auto before = std::min(length, window - 1);
    const auto seen = torch::cat({storage.narrow(token_dim, length - before, before), fresh}, token_dim);
    length = std::min(window, before + count);
    storage.narrow(token_dim, 0, length).copy_(seen.narrow(token_dim, before + count - length, length));
    return seen;
  }
  require_room(length + count);
  storage.narrow(token_dim, length, count).copy_(fresh);
  length += count;
  return storage.narrow(token_dim, 0, length);
}

void MixerState::require_room(std::int64_t tokens) const {
  if (tokens > capacity_)
    throw Error(ExitCode::failure, fmt::format("a cache of {} tokens cannot hold {}", capacity_, tokens));
}

std::int64_t MixerState::append(std::size_t slot) {
  auto& length = buffers_.at(slot).length;
  require_room(length + 1);
  return length++;
}

void MixerState::select(const torch::Tensor& rows_b) {
  const auto select_rows = [&](torch::Tensor& all, const torch::Tensor& used) {
    const auto selected = used.index_select(0, rows_b);
    if (stays_ && all.size(0) == rows_b.size(0))
      used.copy_(selected);
    else
      all = selected;
  };
  for (auto& [storage, length] : buffers_)
    if (storage.defined()) select_rows(storage, place_1_.defined() ? storage.narrow(token_dim, 0, visible_) : storage);
  for (auto& kept : kept_)
    if (kept.value.defined()) select_rows(kept.value, kept.value);
}

void MixerState::keep_newest(std::int64_t tokens) {
  for (auto& [storage, length] : buffers_) {
    if (length <= tokens) continue;
    const auto newest = storage.narrow(token_dim, length - tokens, tokens).clone();  // source and target may overlap
    storage.narrow(token_dim, 0, tokens).copy_(newest);
    length = tokens;
  }
}

NamedTensors MixerState::tensors() const {
  NamedTensors all;
  for (std::size_t slot = 0; slot < buffers_.size(); ++slot)
    if (buffers_[slot].storage.defined()) all.emplace_back(slot_name(slot), held(slot));
  for (std::size_t slot = 0; slot < kept_.size(); ++slot)
    if (kept_[slot].is_held) all.emplace_back(kept_name(slot), kept_[slot].value);
  return all;
}

torch::Tensor MixerState::kept(std::size_t slot, at::IntArrayRef sizes) const {
  if (slot >= kept_.size() || !kept_[slot].is_held) return {};
  if (kept_[slot].value.sizes() != sizes)
    throw Error(ExitCode::usage, "a state was made by a model of other sizes, or for another number of sequences");
  return kept_[slot].value;
}

void MixerState::keep(std::size_t slot, const torch::Tensor& value) {
  if (slot >= kept_.size()) kept_.resize(slot + 1);
  auto& kept = kept_[slot];
  kept.is_held = true;
  if (stays_ && kept.value.defined())
    kept.value.copy_(value);
  else
    kept.value = value.detach();
}

void MixerState::load(const NamedTensors& saved, const std::string& source) {
  buffers_.clear();
  kept_.clear();
  for (const auto& [name, tensor] : saved) {
    if (const auto slot = slot_named(name, kept_name); slot < most_slots) {
      keep(slot, tensor.to(device_));
      continue;
    }
    const auto slot = slot_named(name, slot_name);
    if (slot == most_slots)
      throw Error(ExitCode::usage, fmt::format("{}: no mixer remembers {}", source, in_quotes(name)));
    if (tensor.size(token_dim) > capacity_)
      throw Error(ExitCode::usage, fmt::format("{}: {} tokens are more than the {} of this state", source,
                                               tensor.size(token_dim), capacity_));
    extend(slot, tensor.to(device_));
  }
}

std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape) {
  return std::visit([&](const auto& options) { return options.make(shape); }, config);
}

MixerCost cost_of(const MixerConfig& config, const MixerShape& shape, const MixerLoad& load) {
  const MetaModules meta;
  return make_mixer(config, shape)->cost(load);
}

namespace {

// The bytes of the state of one text with room for `capacity` tokens, after one token.
std::int64_t state_bytes(Mixer& mixer, std::int64_t width, std::int64_t capacity) {
  const torch::NoGradGuard no_grad;
  const auto x_bcd = torch::zeros({1, 1, width});
  MixerState state(capacity);
  Pass pass;
  mixer.forward(x_bcd, x_bcd, self_visibility(true, {}), &state, pass);
  return state.bytes();
}

}  // namespace

MixerSizes sizes_of(const MixerConfig& config, const MixerShape& shape, std::int64_t tokens) {
  constexpr std::int64_t most_parameters = 1 << 26;  // 256 MiB; larger mixers are not created
  MixerSizes sizes;
  {
    const MetaModules meta;
    for (const auto& parameter : make_mixer(config, shape)->parameters())
      if (parameter.requires_grad()) sizes.parameters += parameter.numel();
  }
  if (chooses_by_whole_sequence(config) || sizes.parameters > most_parameters) return sizes;
  auto plain = shape;  // positions are not in the state
  plain.positions = NoPositionsConfig{};
  const auto mixer = make_mixer(config, plain);
  const auto of_one = state_bytes(*mixer, shape.width, 1), of_two = state_bytes(*mixer, shape.width, 2);
  sizes.state_bytes = of_one + (tokens_kept_of(config, tokens) - 1) * (of_two - of_one);
  return sizes;
}

std::int64_t bytes_of(const std::vector<MixerState>& states) {
  return std::accumulate(states.begin(), states.end(), std::int64_t{0},
                         [](std::int64_t total, const MixerState& state) { return total + state.bytes(); });
}

}  // namespace metaformer
