#include "attention/mixer.h"

#include <fmt/format.h>

#include "base/error.h"

namespace metaformer {

torch::Tensor MixerState::extend(std::size_t slot, const torch::Tensor& fresh, std::int64_t dim) {
  if (slot >= buffers_.size()) buffers_.resize(slot + 1);
  auto& [storage, length] = buffers_[slot];
  const auto count = fresh.size(dim);
  require_room(length + count);
  if (!storage.defined()) {
    auto sizes = fresh.sizes().vec();
    sizes[static_cast<std::size_t>(dim)] = capacity_;
    storage = torch::empty(sizes, fresh.options());
  }
  storage.narrow(dim, length, count).copy_(fresh);
  length += count;
  return storage.narrow(dim, 0, length);
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

void MixerState::clear() {
  for (auto& buffer : buffers_) buffer.length = 0;
}

std::int64_t MixerState::bytes() const {
  std::int64_t total = 0;
  for (const auto& buffer : buffers_)
    if (buffer.storage.defined()) total += static_cast<std::int64_t>(buffer.storage.nbytes());
  return total;
}

}  // namespace metaformer
