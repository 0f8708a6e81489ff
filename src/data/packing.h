#pragma once
// Packs of sequences that share a row (Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination"),
// planned from the histogram of their lengths alone, so that the time for it does not depend on the number of
// sequences.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

// h[l]: how many sequences have the length l; h[0] is 0, and the context is h.size() - 1.
using LengthHistogram = std::vector<std::int64_t>;

LengthHistogram length_histogram(const std::vector<std::int64_t>& lengths, std::int64_t context);

// Packs of the same lengths.
struct PackKind {
  std::vector<std::int64_t> lengths;
  std::int64_t count = 0;
};

struct PackPlan {
  std::vector<PackKind> kinds;
  std::int64_t packs() const;
};

// Shortest-pack-first histogram packing: takes the longest sequences first, and puts each into the pack with the most
// room, if it fits, among the packs with fewer than `depth` sequences (0: any number). A sequence that fits into no
// pack opens a new one.
PackPlan pack_shortest_first(const LengthHistogram& histogram, std::int64_t depth);

// Non-negative least squares histogram packing: for every way to fill a context with at most `depth` sequences,
// computes how often to use it, so that as few sequences as possible are left over or missing (by least squares); the
// lengths 1 to 8 weigh 0.09, since they cost little padding. Unlike in the publication, sequences that are left over
// are packed by pack_shortest_first. A length may have more places than sequences; if sequences take places in the
// order of the plan, every pack has at least one.
PackPlan pack_by_least_squares(const LengthHistogram& histogram, std::int64_t depth);

PackPlan make_pack_plan(const LengthHistogram& histogram, const PackingConfig& config);

struct PackStats {
  std::int64_t sequences = 0, packs = 0, tokens = 0;
  double efficiency = 0;      // fraction of tokens that are not padding
  double factor = 0;          // sequences per pack
  double speed_up_limit = 0;  // of packs without padding, compared with one sequence in each row
};
PackStats measure_packs(const LengthHistogram& histogram, const PackPlan& plan);

// The same for sequences of these lengths, 1 ... context each, and the plan that the config asks for.
PackStats measure_packing(const std::vector<std::int64_t>& lengths, std::int64_t context, const PackingConfig& config);

// Which sequences lie in which pack, epoch by epoch.
class PackedOrder {
 public:
  // `lengths` of the sequences, 1 ... context each.
  PackedOrder(const std::vector<std::int64_t>& lengths, std::int64_t context, const PackingConfig& config);

  std::int64_t packs() const { return packs_; }  // of every epoch

  // The indices of the sequences in the pack at a place in the endless series of epochs: a function of (seed, place).
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

// Non-negative least squares with many sparse columns.
struct SparseEntry {
  std::int64_t row = 0;
  double value = 0;
};
using SparseColumn = std::vector<SparseEntry>;  // at most one entry per row

// The x >= 0 that minimises |A x - b| for the columns of A, by the active sets of Lawson and Hanson (1974, chapter 23),
// up to rounding. The time is about (rows)^3.
std::vector<double> nonnegative_least_squares(const std::vector<SparseColumn>& columns, const std::vector<double>& b);

}  // namespace metaformer
