#pragma once
// In which order training goes through its items.

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace metaformer {

// The endless series of epochs: each is a permutation of the items, a function of (seed, epoch). With bucketing the
// rows of that many steps are sorted by length, and these steps are then shuffled.
class EpochOrder {
 public:
  // `lengths`: of every item.
  EpochOrder(std::vector<double> lengths, std::int64_t bucketing)
      : lengths_(std::move(lengths)), bucketing_(bucketing) {}

  // The place in the series of a row of a step of `rows_per_step`.
  std::int64_t place(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step, std::int64_t row) const;

  // The item at a place in the series.
  std::size_t item_at(std::uint64_t seed, std::int64_t place) const;

 private:
  const std::vector<std::size_t>& epoch(std::uint64_t seed, std::int64_t number) const;
  const std::vector<std::int64_t>& group(std::uint64_t seed, std::int64_t number, std::int64_t rows_per_step) const;

  std::vector<double> lengths_;
  std::int64_t bucketing_;

  // The result of the last request.
  mutable std::vector<std::size_t> epoch_;
  mutable std::optional<std::pair<std::uint64_t, std::int64_t>> epoch_key_;
  mutable std::vector<std::int64_t> group_;
  mutable std::optional<std::tuple<std::uint64_t, std::int64_t, std::int64_t>> group_key_;
};

}  // namespace metaformer
