#include "data/datasets/epoch_order.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace metaformer {

// Random streams of groups, separate from those of epochs.
static constexpr auto beyond_epochs = std::uint64_t{1} << 63;

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
    epoch_.resize(lengths_.size());
    std::iota(epoch_.begin(), epoch_.end(), std::size_t{0});
    shuffle(epoch_, Rng(seed, RandomPurpose::batches, static_cast<std::uint64_t>(number)));
  }
  return epoch_;
}

// The places of the steps of a group, in the order of the steps.
const std::vector<std::int64_t>& EpochOrder::group(std::uint64_t seed, std::int64_t number,
                                                   std::int64_t rows_per_step) const {
  if (const auto key = std::tuple(seed, number, rows_per_step); group_key_ != key) {
    group_key_ = key;
    std::vector<std::pair<double, std::int64_t>> by_length;
    const auto rows = bucketing_ * rows_per_step;
    for (auto place = number * rows; place < (number + 1) * rows; ++place)
      by_length.emplace_back(lengths_[item_at(seed, place)], place);
    std::stable_sort(by_length.begin(), by_length.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::int64_t> steps(static_cast<std::size_t>(bucketing_));
    std::iota(steps.begin(), steps.end(), std::int64_t{0});
    shuffle(steps, Rng(seed, RandomPurpose::batches, beyond_epochs + static_cast<std::uint64_t>(number)));
    group_.clear();
    for (const auto step : steps)
      for (auto row = step * rows_per_step; row < (step + 1) * rows_per_step; ++row)
        group_.push_back(by_length[static_cast<std::size_t>(row)].second);
  }
  return group_;
}

}  // namespace metaformer
