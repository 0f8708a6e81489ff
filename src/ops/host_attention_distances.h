#pragma once
// What distances add to the scores of a head on the CPU (HeadAttention::distance), tile by tile of queries: a product
// with all the distances of a tile, of which every query takes its own stretch.

#include "ops/host_attention_packing.h"

namespace metaformer::host_kernel {

template <class Element, class Units, int Rows, int Vectors>
struct Distances : Packing<Element, Units, Rows, Vectors> {
  using Base = Packing<Element, Units, Rows, Vectors>;
  using Base::room, Base::pairs;
  using typename Base::Packed;

  const HeadAttention& in;
  std::int64_t key_width, key_units;
  std::int64_t all_queries = in.queries + in.query_padding;
  // Rows of 0 before the first distance, so that those of every tile begin at a panel.
  std::int64_t lead = round_up(all_queries, tile) - all_queries;
  std::int64_t rows = round_up(all_queries, tile) + round_up(in.keys, panel);
  std::int64_t step = round_up(in.keys, panel) + tile + lane_count;  // of a tile's matrices
  const float *packed = nullptr, *panels = nullptr;
  float *queries = nullptr, *products = nullptr, *gradient = nullptr;

  Distances(const HeadAttention& head, HeadWorkspace& workspace, std::int64_t width, std::int64_t units)
      : Base{workspace}, in(head), key_width(width), key_units(units) {}

  bool any() const { return in.distances > 0; }

  // Of room, in floats.
  METAFORMER_INLINE std::int64_t size() const {
    return any() ? 4 * rows * key_width + tile * (3 * step + 3 * key_width) : 0;
  }

  METAFORMER_INLINE void prepare(bool backward) {
    if (!any()) return;
    float* all = room.take(rows * key_units);
    std::fill(all, all + lead * key_units, 0.0f);
    pack_rows<Packed, Element>(in.distance, 0, std::min(in.distances, rows - lead), rows - lead, all + lead * key_units,
                               key_units);
    panels = this->transposed(all, rows, key_units);
    queries = room.take(tile * key_units);
    products = room.take(tile * step);
    if (!backward) return;
    packed = this->along_rows(all, rows, key_width);
    gradient = room.take(rows * key_width);
    std::fill(gradient, gradient + rows * key_width, 0.0f);
  }

  // The row of the first distance of a tile to key `begin`; that of its query r to key j is j - begin + tile - 1 - r
  // rows further.
  METAFORMER_INLINE std::int64_t first_row(std::int64_t first_query, std::int64_t begin) const {
    return round_up(all_queries, tile) - tile - first_query + begin;
  }

  // score[r][j] += ... for keys begin + j, j < width, of the queries from `first`.
  METAFORMER_INLINE void add(std::int64_t first, std::int64_t begin, std::int64_t width, float* score,
                             std::int64_t score_step) const {
    pack_rows<Packed, Element>(in.distance_q, first, std::min(tile, in.queries - first), tile, queries, key_units);
    this->multiply_panels(queries, key_units, panels + first_row(first, begin) * key_units, width + tile, products,
                          step);
    for (std::int64_t r = 0; r < tile; ++r) {
      const float* of_query = products + r * step + tile - 1 - r;
      for (std::int64_t j = 0; j < width; j += lane_count)
        store_lanes(score + r * score_step + j, load_lanes(score + r * score_step + j) + load_lanes(of_query + j));
    }
  }

  // The gradients behind the scores' own, which are 0 in rows that are not there; after add() of the same tile.
  METAFORMER_INLINE void add_gradients(std::int64_t first, std::int64_t begin, std::int64_t width, const float* slopes,
                                       std::int64_t score_step) const {
    for (std::int64_t r = 0; r < tile; ++r) {
      float* of_query = products + r * step;
      std::fill(of_query, of_query + width + tile, 0.0f);
      std::copy_n(slopes + r * score_step, width, of_query + tile - 1 - r);
    }
    const auto row = first_row(first, begin);
    const auto left = this->sides_of(products, width + tile, step, pairs ? room.take(tile * step / 2) : nullptr);
    float* dq = room.take(tile * key_width);
    multiply<Units, Rows, Vectors, false>(tile, key_width, (width + tile) / Units::unit, left.rows,
                                          packed + row / Units::unit * key_width, key_width, dq, key_width);
    unpack_rows<Element>(dq, key_width, std::min(tile, in.queries - first), in.ddistance_q, first);
    const float* of_queries = this->along_rows(queries, tile, key_width);
    multiply<Units, Rows, Vectors, true>(width + tile, key_width, tile / Units::unit, left.columns, of_queries,
                                         key_width, gradient + row * key_width, key_width);
  }

  METAFORMER_INLINE void store_gradients() const {
    if (!any()) return;
    const auto there = std::min(in.distances, rows - lead);
    unpack_rows<Element>(gradient + lead * key_width, key_width, there, in.ddistance, 0);
    zero_rows<Element>(in.ddistance, there, in.distances - there);
    zero_rows<Element>(in.ddistance_q, in.queries, in.query_padding);
  }
};

}  // namespace metaformer::host_kernel
