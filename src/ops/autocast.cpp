#include "ops/autocast.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace metaformer {

namespace {

// All copies, by the storage of their values.
struct Copies {
  std::shared_mutex mutex;
  std::map<const c10::StorageImpl*, const HalfWeights*> by_storage;
};

Copies& all_copies() {
  static Copies copies;
  return copies;
}

const c10::StorageImpl* storage_of(const torch::Tensor& x) { return x.storage().unsafeGetStorageImpl(); }

bool is_cast(const torch::Tensor& weight) {
  return (weight.is_cpu() || weight.is_cuda()) && weight.scalar_type() == torch::kFloat &&
         at::autocast::is_autocast_enabled(weight.device().type());
}

}  // namespace

void count_write(const torch::Tensor& x) { x.unsafeGetTensorImpl()->bump_version(); }

HalfWeights::HalfWeights(torch::Tensor values, std::vector<Part> parts, torch::ScalarType type)
    : values_(std::move(values)),
      copy_(torch::empty_like(values_, values_.options().dtype(type))),
      parts_(std::move(parts)),
      part_counted_(parts_.size(), -1) {
  TORCH_CHECK(values_.storage_offset() == 0, "the copy of weights needs the whole buffer");
  auto& copies = all_copies();
  const std::unique_lock lock(copies.mutex);
  copies.by_storage[storage_of(values_)] = this;
}

HalfWeights::~HalfWeights() {
  auto& copies = all_copies();
  const std::unique_lock lock(copies.mutex);
  copies.by_storage.erase(storage_of(values_));
}

bool HalfWeights::is_current(std::size_t part) const {
  return values_._version() == counted_ && parts_[part].parameter._version() == part_counted_[part];
}

bool HalfWeights::is_current() const {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (!is_current(i)) return false;
  return true;
}

void HalfWeights::refresh() {
  if (is_current()) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parts_.size();) {
    const auto first = parts_[i].offset;
    auto end = first;  // of the parts that follow without a gap, which are cast together
    for (; i < parts_.size() && parts_[i].offset == end; ++i) end = parts_[i].end();
    copy_.narrow(0, first, end - first).copy_(values_.narrow(0, first, end - first));
  }
  counted_ = values_._version();
  for (std::size_t i = 0; i < parts_.size(); ++i) part_counted_[i] = parts_[i].parameter._version();
}

torch::Tensor HalfWeights::copy_of(const torch::Tensor& weight) {
  if (!weight.defined() || !is_cast(weight)) return {};
  auto& copies = all_copies();
  const std::shared_lock lock(copies.mutex);
  const auto found = copies.by_storage.find(storage_of(weight));
  if (found == copies.by_storage.end()) return {};
  const auto& half = *found->second;
  if (at::autocast::get_autocast_dtype(weight.device().type()) != half.copy_.scalar_type()) return {};
  const auto offset = weight.storage_offset();
  const auto after = std::upper_bound(half.parts_.begin(), half.parts_.end(), offset,
                                      [](std::int64_t place, const Part& part) { return place < part.offset; });
  if (after == half.parts_.begin()) return {};
  const auto part = static_cast<std::size_t>(after - half.parts_.begin()) - 1;
  if (offset >= half.parts_[part].end() || !half.is_current(part)) return {};
  return half.copy_.as_strided(weight.sizes(), weight.strides(), offset);
}

}  // namespace metaformer
