#include "data/epoch_order.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace metaformer {

// Random streams of groups and batches, separate from those of epochs.
static constexpr auto beyond_epochs = std::uint64_t{1} << 63;

// The numbers 0 ... size - 1 in the order of an epoch.
static std::vector<std::size_t> permutation(std::size_t size, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, Rng(seed, RandomPurpose::batches, epoch));
  return order;
}

std::int64_t EpochOrder::place(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step,
                               std::int64_t row) const {
  if (bucketing_ == 1) return step * rows_per_step + row;
  const auto within = step % bucketing_ * rows_per_step + row;
  return group(seed, step / bucketing_, rows_per_step)[static_cast<std::size_t>(within)];
}

std::size_t EpochOrder::item_at(std::uint64_t seed, std::int64_t place) const {
  const auto size = std::ssize(lengths_);
  return epoch(seed, place / size)[static_cast<std::size_t>(place % size)];
}

const std::vector<std::size_t>& EpochOrder::epoch(std::uint64_t seed, std::int64_t number) const {
  if (const auto key = std::pair(seed, number); epoch_key_ != key) {
    epoch_key_ = key;
    epoch_ = permutation(lengths_.size(), seed, static_cast<std::uint64_t>(number));
  }
  return epoch_;
}

// The places of all rows of a group of steps, in the order of the steps.
const std::vector<std::int64_t>& EpochOrder::group(std::uint64_t seed, std::int64_t number,
                                                   std::int64_t rows_per_step) const {
  if (const auto key = std::tuple(seed, number, rows_per_step); group_key_ != key) {
    group_key_ = key;
    std::vector<std::pair<double, std::int64_t>> by_length;
    const auto rows = bucketing_ * rows_per_step;
    for (auto place = number * rows; place < (number + 1) * rows; ++place)
      by_length.emplace_back(lengths_[item_at(seed, place)], place);
    std::ranges::sort(by_length);  // of equal lengths the first place comes first
    group_.clear();
    const auto size = static_cast<std::size_t>(rows_per_step);
    for (const auto step :
         permutation(static_cast<std::size_t>(bucketing_), seed, beyond_epochs + static_cast<std::uint64_t>(number)))
      for (auto row = step * size; row < (step + 1) * size; ++row) group_.push_back(by_length[row].second);
  }
  return group_;
}

TokenBatches::TokenBatches(std::vector<PairLength> lengths, std::int64_t most, std::int64_t bucketing,
                           std::uint64_t seed)
    : lengths_(std::move(lengths)), most_(most), bucketing_(bucketing), seed_(seed) {
  starts_.push_back(std::ssize(epoch(0)));
}

std::vector<std::size_t> TokenBatches::order_of(std::int64_t epoch) const {
  auto order = permutation(lengths_.size(), seed_, static_cast<std::uint64_t>(epoch));
  if (bucketing_ == 1) return order;
  double tokens = 0;
  for (const auto& length : lengths_) tokens += static_cast<double>(length.longer);
  const auto rows = static_cast<double>(bucketing_ * most_) * static_cast<double>(lengths_.size()) / tokens;
  const auto group = static_cast<std::ptrdiff_t>(std::min(std::max(rows, 1.0), static_cast<double>(order.size())));
  // Every other group is sorted by falling length, so that a batch across two groups has pairs of similar length, too.
  bool falls = false;
  for (auto first = order.begin(); first != order.end(); falls = !falls) {
    const auto end = first + std::min(group, order.end() - first);
    std::stable_sort(first, end, [&](std::size_t a, std::size_t b) {
      return falls ? lengths_[b] < lengths_[a] : lengths_[a] < lengths_[b];
    });
    first = end;
  }
  return order;
}

const TokenBatches::Epoch& TokenBatches::epoch(std::int64_t number) const {
  if (epoch_number_ == number) return epoch_;
  epoch_number_ = number;
  epoch_.clear();
  std::int64_t longest = 0;
  for (const auto item : order_of(number)) {
    longest = std::max(longest, lengths_[item].longer);
    if (epoch_.empty() || (std::ssize(epoch_.back()) + 1) * longest > most_) {
      epoch_.emplace_back();
      longest = lengths_[item].longer;
    }
    epoch_.back().push_back(item);
  }
  if (bucketing_ > 1)
    shuffle(epoch_, Rng(seed_, RandomPurpose::batches, beyond_epochs + static_cast<std::uint64_t>(number)));
  return epoch_;
}

const std::vector<std::size_t>& TokenBatches::batch(std::int64_t number) const {
  while (starts_.back() <= number) starts_.push_back(starts_.back() + std::ssize(epoch(std::ssize(starts_) - 1)));
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), number);
  const auto of_epoch = next - starts_.begin() - 1;
  return epoch(of_epoch)[static_cast<std::size_t>(number - starts_[static_cast<std::size_t>(of_epoch)])];
}

}  // namespace metaformer
