#pragma once
// Which sequences lie in which pack, epoch by epoch.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "data/packing/pack_plan.h"

namespace metaformer {

class PackedOrder {
 public:
  // `lengths` of the sequences, 1 ... context each.
  PackedOrder(const std::vector<std::int64_t>& lengths, std::int64_t context, const PackingConfig& config);

  std::int64_t packs() const { return packs_; }  // of every epoch

  // The sequences of a pack, by their index, at a place in the endless series of epochs: a function of (seed, place).
  // In every epoch each sequence is in one pack.
  const std::vector<std::size_t>& at(std::uint64_t seed, std::int64_t place) const;

 private:
  using Packs = std::vector<std::vector<std::size_t>>;
  Packs deal(std::uint64_t seed, std::int64_t epoch) const;

  std::vector<std::vector<std::size_t>> sequences_;  // by length
  PackPlan plan_;
  std::int64_t packs_ = 0;

  // The epoch of the last request.
  mutable Packs epoch_;
  mutable std::optional<std::pair<std::uint64_t, std::int64_t>> epoch_key_;
};

// How many sequences have each length.
LengthHistogram length_histogram(const std::vector<std::int64_t>& lengths, std::int64_t context);

// What packing sequences of these lengths, 1 ... context each, gains.
PackStats measure_packing(const std::vector<std::int64_t>& lengths, std::int64_t context, const PackingConfig& config);

}  // namespace metaformer
