#pragma once
// Training batches of about equally many tokens, whatever the lengths of their pairs.

#include <compare>
#include <cstdint>
#include <vector>

namespace metaformer {

// Tokens of a pair's sides.
struct PairLength {
  std::int64_t longer = 0, shorter = 0;
  auto operator<=>(const PairLength&) const = default;
};

// The endless series of batches. Every epoch is a permutation of the pairs, a function of (seed, epoch), cut into
// batches that hold as many pairs as fit. With bucketing, pairs of that many batches are sorted by length before; then
// the batches of the epoch are shuffled.
class TokenBatches {
 public:
  // `most`: the largest size of a batch in tokens, which is the number of its pairs times the longest side among them.
  // A pair that is longer than this is alone in its batch.
  TokenBatches(std::vector<PairLength> lengths, std::int64_t most, std::int64_t bucketing);

  // The pairs of the batch with this number.
  const std::vector<std::size_t>& batch(std::uint64_t seed, std::int64_t number) const;

  // Batches of the first epoch of seed 0.
  std::int64_t usual_count() const { return usual_count_; }

 private:
  using Epoch = std::vector<std::vector<std::size_t>>;

  std::vector<std::size_t> order_of(std::uint64_t seed, std::int64_t epoch) const;
  Epoch batches_of(std::uint64_t seed, std::int64_t epoch) const;
  const Epoch& epoch(std::uint64_t seed, std::int64_t number) const;

  std::vector<PairLength> lengths_;
  std::int64_t most_, bucketing_, usual_count_;

  // Of the seed that was asked for last: the number of the first batch of every epoch so far, and one epoch.
  mutable std::uint64_t seed_ = 0;
  mutable std::vector<std::int64_t> starts_;
  mutable std::int64_t epoch_number_ = -1;
  mutable Epoch epoch_;
};

}  // namespace metaformer
