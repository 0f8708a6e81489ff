#pragma once
// Where the entries of a tensor stand in the mask of a draw (cpu/dropout.h). A row of a step has the same places
// however rows are divided over micro-batches, slices and processes, and however long they are padded.

#include <cstdint>

#ifdef __CUDACC__
#define ON_BOTH_SIDES __host__ __device__
#else
#define ON_BOTH_SIDES
#endif

namespace metaformer::cuda {

// Entry i of row r: r << row_shift | i; of segment s in it: r << row_shift | s << segment_shift | i. The weight of a
// key in head n of query q: r << row_shift | n << head_shift | q << query_shift | key. Beyond 256 heads or 65,536
// tokens places repeat.
constexpr int row_shift = 40, head_shift = 32, segment_shift = 24, query_shift = 16;

ON_BOTH_SIDES inline std::int64_t place_of_weight(std::int64_t row, std::int64_t head, std::int64_t query,
                                                  std::int64_t key) {
  return (row << row_shift) + (head << head_shift) + (query << query_shift) + key;
}

// Tensors are runs of entries with consecutive places, one run after the other.
struct DropoutPlaces {
  std::int64_t run = 0;        // entries of a run
  std::int64_t first_row = 0;  // in the step
  std::int64_t heads = 0,
               queries = 0;  // of weights [b, n, c, c'], whose runs are the keys of a query; 0: runs are rows
  const std::int64_t* starts = nullptr;  // the first place of every run; none: runs are rows, or of weights
};

// Of the first entry of a run; those behind it follow.
ON_BOTH_SIDES inline std::int64_t first_place(const DropoutPlaces& places, std::int64_t run) {
  if (places.starts != nullptr) return places.starts[run];
  if (places.heads == 0) return (places.first_row + run) << row_shift;
  const auto query = run % places.queries, head = run / places.queries % places.heads,
             row = run / places.queries / places.heads;
  return place_of_weight(places.first_row + row, head, query, 0);
}

}  // namespace metaformer::cuda

#undef ON_BOTH_SIDES
