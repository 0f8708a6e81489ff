#pragma once
// Where the entries of a tensor stand in the mask of a draw (ops/dropout_kernel.h). A row of a step has the same places
// however rows are divided over micro-batches, slices and processes, and however long they are padded.

#include <cstdint>

namespace metaformer::cuda {

// Entry i of row r: r << row_shift | i; of segment s in it: r << row_shift | s << segment_shift | i. The weight of a
// key in head n of query q: r << row_shift | n << head_shift | q << query_shift | key. Beyond 256 heads or 65,536
// tokens places repeat.
constexpr int row_shift = 40, head_shift = 32, segment_shift = 24, query_shift = 16;

// Tensors are runs of entries with consecutive places, one run after the other.
struct DropoutPlaces {
  std::int64_t run = 0;        // entries of a run
  std::int64_t first_row = 0;  // in the step
  std::int64_t heads = 0,
               queries = 0;  // of weights [b, n, c, c'], whose runs are the keys of a query; 0: runs are rows
  const std::int64_t* starts = nullptr;  // the first place of every run; none: runs are rows, or of weights
};

}  // namespace metaformer::cuda
