#pragma once
// The order in which training goes through its items.

#include <compare>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace metaformer {

// An endless series of epochs: each is a permutation of the items, a function of (seed, epoch). With bucketing above 1,
// the rows of this many steps are sorted by length and divided into steps again, which are then shuffled.
class EpochOrder {
 public:
  // `lengths`: of every item.
  EpochOrder(std::vector<double> lengths, std::int64_t bucketing)
      : lengths_(std::move(lengths)), bucketing_(bucketing) {}

  // The place in the series of row `row` of step `step`, if every step has `rows_per_step` rows.
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

// The numbers of tokens of a pair's two sides.
struct PairLength {
  std::int64_t longer = 0, shorter = 0;
  auto operator<=>(const PairLength&) const = default;
};

// An endless series of training batches of about equally many tokens, whatever the lengths of their pairs. Every epoch
// is a permutation of the pairs, a function of (seed, epoch), cut into batches that hold as many pairs as fit. With
// bucketing above 1, the pairs of about this many batches are sorted by length before the cut, and the batches of the
// epoch are shuffled after it.
class TokenBatches {
 public:
  // `most`: the largest size of a batch in tokens, which is the number of its pairs times the longest side among them.
  // A pair with more tokens than that is alone in its batch.
  TokenBatches(std::vector<PairLength> lengths, std::int64_t most, std::int64_t bucketing, std::uint64_t seed);

  // The pairs of the batch with this number.
  const std::vector<std::size_t>& batch(std::int64_t number) const;

  // The number of batches in the first epoch; other epochs may differ a little.
  std::int64_t batches_per_epoch() const { return starts_[1]; }

 private:
  using Epoch = std::vector<std::vector<std::size_t>>;

  std::vector<std::size_t> order_of(std::int64_t epoch) const;
  const Epoch& epoch(std::int64_t number) const;

  std::vector<PairLength> lengths_;
  std::int64_t most_, bucketing_;
  std::uint64_t seed_;

  // The number of the first batch of every epoch so far, and the batches of one epoch.
  mutable std::vector<std::int64_t> starts_ = {0};
  mutable std::int64_t epoch_number_ = -1;
  mutable Epoch epoch_;
};

}  // namespace metaformer
