#pragma once
// The place of every entry of a tensor: the index from which dropout decides whether it drops the entry
// (cpu/dropout.h). A row of a step has the same places, however rows are divided over micro-batches, slices and
// processes, and however long they are padded.

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define ON_BOTH_SIDES __host__ __device__
#else
#define ON_BOTH_SIDES
#endif

namespace metaformer::cuda {

// Places. Entry i of row r: r << row_shift | i. Entry i of segment s of row r: r << row_shift | s << segment_shift | i.
// The weight of a key for query q in head n: r << row_shift | n << head_shift | q << query_shift | key.
constexpr int row_shift = 40, head_shift = 32, segment_shift = 24, query_shift = 16;

// Upper bits that have no room there, of a head from 256 on and of a query or key from 65,536 on, are stored above the
// bits of the row. Places of weights repeat only beyond 4,096 heads, beyond 2,097,152 tokens, and in a step of more
// than 2^20 rows with over 256 heads, 2^15 rows with over 65,536 queries or 2^10 rows with over 65,536 keys.
constexpr int far_head_shift = 60, far_query_shift = 55, far_key_shift = 50;
constexpr int head_bits = row_shift - head_shift, token_bits = query_shift;  // the bits stored below those of the row

// `number` with its lowest `bits` bits at `shift` and its other bits at `far_shift`.
ON_BOTH_SIDES inline std::uint64_t split_at(std::int64_t number, int bits, int shift, int far_shift) {
  const auto all = static_cast<std::uint64_t>(number);
  return ((all & ((1u << bits) - 1)) << shift) + (all >> bits << far_shift);
}

// The place of query 0 and key 0 of a head. Its sum with place_in_head is the place of a weight.
ON_BOTH_SIDES inline std::uint64_t place_of_head(std::int64_t row, std::int64_t head) {
  return (static_cast<std::uint64_t>(row) << row_shift) + split_at(head, head_bits, head_shift, far_head_shift);
}
// Keys from one multiple of 2^token_bits to the next have consecutive places.
ON_BOTH_SIDES inline std::uint64_t place_in_head(std::int64_t query, std::int64_t key) {
  return split_at(query, token_bits, query_shift, far_query_shift) + split_at(key, token_bits, 0, far_key_shift);
}
ON_BOTH_SIDES inline std::int64_t place_of_weight(std::int64_t row, std::int64_t head, std::int64_t query,
                                                  std::int64_t key) {
  return static_cast<std::int64_t>(place_of_head(row, head) + place_in_head(query, key));
}

// Divides by multiplying with a reciprocal, because GPUs have no instruction for integer division. n / d = floor(n
// ceil(2^(63 + s) / d) / 2^(63 + s)) for all n below 2^63 if 2^s >= d (Granlund, Montgomery 1994).
class Divisor {
 public:
  Divisor(std::int64_t value = 0) : value_(value) {  // NOLINT: stands for the number
    if (value == 0) return;
    shift_ = std::bit_width(static_cast<std::uint64_t>(value - 1));
    const auto divisor = static_cast<unsigned __int128>(value);
    reciprocal_ =
        static_cast<std::uint64_t>(((static_cast<unsigned __int128>(1) << (63 + shift_)) + divisor - 1) / divisor);
  }

  ON_BOTH_SIDES std::int64_t value() const { return value_; }
  ON_BOTH_SIDES std::int64_t quotient(std::int64_t number) const {
    const auto product = static_cast<unsigned __int128>(static_cast<std::uint64_t>(number) << 1) * reciprocal_;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(product >> 64) >> shift_);
  }

 private:
  std::int64_t value_;
  std::uint64_t reciprocal_ = 0;
  int shift_ = 0;
};

// The places of a tensor that consists of runs of consecutive entries, all equally long.
struct DropoutPlaces {
  Divisor run;                 // number of entries in a run
  std::int64_t first_row = 0;  // number of the tensor's first row in the step
  Divisor heads, queries;      // n and c of weights [b, n, c, c'], whose runs are the keys of a query; 0: runs are rows
  const std::int64_t* starts = nullptr;  // the first place of every run; nullptr: it follows from the members above
};

// Entries with consecutive places.
struct Stretch {
  std::int64_t place;  // of the first
  std::int64_t count;
};

// The entries from `entry` to the end of its run, or to the next multiple of 2^token_bits among the keys, where places
// are not consecutive.
ON_BOTH_SIDES inline Stretch stretch_from(const DropoutPlaces& places, std::int64_t entry) {
  const auto run = places.run.quotient(entry), offset = entry - run * places.run.value();
  const auto left = places.run.value() - offset;
  if (places.starts != nullptr) return {places.starts[run] + offset, left};
  if (places.heads.value() == 0) return {place_of_weight(places.first_row + run, 0, 0, 0) + offset, left};
  const auto head_of_all = places.queries.quotient(run), row = places.heads.quotient(head_of_all);
  const auto query = run - head_of_all * places.queries.value(), head = head_of_all - row * places.heads.value();
  const auto to_others = (std::int64_t{1} << token_bits) - (offset & ((1 << token_bits) - 1));
  return {place_of_weight(places.first_row + row, head, query, offset), left < to_others ? left : to_others};
}

}  // namespace metaformer::cuda

#undef ON_BOTH_SIDES
