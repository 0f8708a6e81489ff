#pragma once
// A head of attention on the CPU: its operands as products take them, and its scores, tile by tile of queries.

#include <cmath>
#include <limits>

#include "cuda/dropout_places.h"
#include "ops/dropout_lanes.h"
#include "ops/host_attention_distances.h"

namespace metaformer::host_kernel {

constexpr float infinity = std::numeric_limits<float>::infinity();

// What a tile of queries may see, in whole panels: keys from `begin` on, `count` of them.
struct KeyRange {
  std::int64_t begin, count;
};

template <class Element, class Units, int Rows, int Vectors>
struct Head : Packing<Element, Units, Rows, Vectors> {
  using Base = Packing<Element, Units, Rows, Vectors>;
  using Base::room, Base::pairs;
  using typename Base::Packed;

  const HeadAttention& in;
  std::int64_t all_keys = round_up(in.keys, panel), score_step = all_keys + lane_count;
  std::int64_t key_width = round_up(in.q.width, lane_count* Units::unit);
  std::int64_t value_width = round_up(in.v.width, lane_count* Units::unit);
  std::int64_t key_units = key_width / Units::unit, value_units = value_width / Units::unit;
  // Right sides of products, of all keys: panels where the depth is the width, the others where it is the keys.
  const float *keys = nullptr, *values = nullptr, *key_panels = nullptr, *value_panels = nullptr;
  // Of a tile: rows of units, scores in float32 and, of pairs, as rows of units.
  float *queries = nullptr, *weights = nullptr, *weight_rows = nullptr;
  Distances<Element, Units, Rows, Vectors> distances;

  Head(const HeadAttention& head, HeadWorkspace& workspace)
      : Base{workspace}, in(head), distances(head, workspace, key_width, key_units) {}

  METAFORMER_INLINE void prepare(bool backward) {
    // Rows, their transpose, gradients; of a tile rows, pairs of them and all forms of scores.
    const auto per_token = (backward ? 3 : 2) * (key_width + value_width);
    room.begin(all_keys * per_token + tile * (4 * score_step + 2 * (key_width + value_width)) + distances.size());
    const float* key_rows = this->packed_rows(in.k, in.keys, all_keys, key_units);
    key_panels = this->transposed(key_rows, all_keys, key_units);
    if (backward || in.shares_values()) keys = this->along_rows(key_rows, all_keys, key_width);
    queries = room.take(tile * key_units);
    weights = room.take(tile * score_step);
    if (pairs) weight_rows = room.take(tile * score_step / 2);
    distances.prepare(backward);
    if (in.shares_values()) {
      values = keys, value_panels = key_panels;
      return;
    }
    const float* value_rows = this->packed_rows(in.v, in.keys, all_keys, value_units);
    if (backward)
      value_panels = this->transposed(value_rows, all_keys, value_units);
    else
      values = this->along_rows(value_rows, all_keys, value_width);
  }

  METAFORMER_INLINE KeyRange keys_of_tile(std::int64_t first) const {
    return in.query_segment == nullptr ? keys_in_order(first) : keys_of_segments(first, keys_in_order(first));
  }

  // Without those at either end whose segments are none of the tile's.
  METAFORMER_INLINE KeyRange keys_of_segments(std::int64_t first, const KeyRange& range) const {
    const auto* queries_begin = in.query_segment + first;
    const auto [least, most] = std::minmax_element(queries_begin, queries_begin + std::min(tile, in.queries - first));
    const auto is_other = [least = *least, most = *most](std::int64_t s) { return s < least || s > most; };
    auto begin = range.begin, end = std::min(in.keys, range.begin + range.count);
    while (begin < end && is_other(in.key_segment[begin])) ++begin;
    while (begin < end && is_other(in.key_segment[end - 1])) --end;
    begin = begin / panel * panel;
    return {begin, round_up(end - begin, panel)};
  }

  METAFORMER_INLINE KeyRange keys_in_order(std::int64_t first) const {
    if (!in.causal) return {0, all_keys};
    const auto end = std::min(all_keys, round_up(first + in.offset + tile, panel));
    const auto begin =
        in.window == 0 ? 0 : std::max<std::int64_t>(0, first + in.offset - in.window + 1) / panel * panel;
    return {std::min(begin, end), end - std::min(begin, end)};
  }

  // A row of the right side of a product over keys.
  METAFORMER_INLINE const float* from_key(const float* along_keys, std::int64_t key, std::int64_t width) const {
    return along_keys + key / Units::unit * width;
  }

  // Of a query's scores those of keys that it does not see become -infinity; keys from in.keys on do not exist.
  METAFORMER_INLINE void mask(float* score, std::int64_t query, const KeyRange& range) const {
    const auto place = query + in.offset;
    const auto end = in.causal ? std::min(place + 1, in.keys) : in.keys;
    const auto visible = std::clamp<std::int64_t>(end - range.begin, 0, range.count);
    std::fill(score + visible, score + range.count, -infinity);
    if (in.causal && in.window > 0)
      std::fill_n(score, std::clamp<std::int64_t>(place - in.window + 1 - range.begin, 0, visible), -infinity);
    if (in.query_segment == nullptr) return;
    const auto own = in.query_segment[query];
    for (std::int64_t j = 0; j < visible; ++j)
      if (in.key_segment[range.begin + j] != own || own == -1) score[j] = -infinity;
  }

  METAFORMER_INLINE void score_tile(std::int64_t first, const KeyRange& range) const {
    const auto count = std::min(tile, in.queries - first);
    pack_rows<Packed, Element>(in.q, first, count, tile, queries, key_units);
    this->multiply_panels(queries, key_units, key_panels + range.begin * key_units, range.count, weights, score_step);
    if (distances.any()) distances.add(first, range.begin, range.count, weights, score_step);
    for (std::int64_t r = 0; r < count; ++r) mask(weights + r * score_step, first + r, range);
  }

  // What dropout multiplies the weights of 16 keys with.
  METAFORMER_INLINE Lanes kept(const DropoutLanes& mask, std::int64_t query, std::int64_t key) const {
    return mask.factors(in.first_place + (query << cuda::query_shift) + key);
  }
};

}  // namespace metaformer::host_kernel
