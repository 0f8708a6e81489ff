#pragma once
// A head of attention on the CPU: its operands as products take them, and its scores, tile by tile of queries.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/vector_math.h"
#include "ops/host_attention_products.h"

namespace metaformer::host_kernel {

constexpr std::int64_t tile = 32;  // queries
constexpr float infinity = std::numeric_limits<float>::infinity();

// A head, its operands packed in Units.
template <class Element, class Units, int Rows, int Vectors>
struct Head {
  static constexpr bool pairs = Units::unit == 2;
  using Packed = std::conditional_t<pairs, std::uint16_t, float>;

  const HeadAttention& in;
  HeadWorkspace& room;
  std::int64_t tokens = round_up(in.tokens, panel), score_step = tokens + lane_count;
  std::int64_t key_width = round_up(in.q.width, lane_count* Units::unit);
  std::int64_t value_width = round_up(in.v.width, lane_count* Units::unit);
  std::int64_t key_units = key_width / Units::unit, value_units = value_width / Units::unit;
  // Right sides of products, of all tokens: panels where the depth is the width, the others where it is the tokens.
  const float *keys = nullptr, *values = nullptr, *key_panels = nullptr, *value_panels = nullptr;
  // Of a tile: rows of units, scores in float32 and, of pairs, as rows of units.
  float *queries = nullptr, *weights = nullptr, *weight_rows = nullptr;

  METAFORMER_INLINE void prepare(bool backward) {
    // Rows, their transpose, gradients; of a tile rows, pairs of them and all forms of scores.
    const auto per_token = (backward ? 3 : 2) * (key_width + value_width);
    room.begin(tokens * per_token + tile * (4 * score_step + 2 * (key_width + value_width)));
    const float* key_rows = packed_rows(in.k, key_units);
    key_panels = transposed(key_rows, key_units);
    if (backward || in.shares_values()) keys = along_rows(key_rows, tokens, key_width);
    queries = room.take(tile * key_units);
    weights = room.take(tile * score_step);
    if (pairs) weight_rows = room.take(tile * score_step / 2);
    if (in.shares_values()) {
      values = keys, value_panels = key_panels;
      return;
    }
    const float* value_rows = packed_rows(in.v, value_units);
    if (backward)
      value_panels = transposed(value_rows, value_units);
    else
      values = along_rows(value_rows, tokens, value_width);
  }

  METAFORMER_INLINE const float* packed_rows(const HeadRows& from, std::int64_t units) const {
    float* rows = room.take(tokens * units);
    pack_rows<Packed, Element>(from, 0, in.tokens, tokens, rows, units);
    return rows;
  }
  METAFORMER_INLINE const float* transposed(const float* rows, std::int64_t units) const {
    float* panels = room.take(tokens * units);
    transpose(rows, tokens, units, panels);
    return panels;
  }

  // Packed rows as the right side of a product whose depth they are.
  METAFORMER_INLINE const float* along_rows(const float* rows, std::int64_t count, std::int64_t width) const {
    if constexpr (!pairs) return rows;
    float* units = room.take(count / 2 * width);
    pair_rows(rows, count, width, units);
    return units;
  }

  // Behind the last key, in whole panels, that the tile's queries may see.
  METAFORMER_INLINE std::int64_t end_of_keys(std::int64_t first) const {
    return in.causal ? std::min(tokens, round_up(first + tile, panel)) : tokens;
  }

  // product[i][j] = left_i . (row j of what `panels` is the transpose of), for j below `end`.
  METAFORMER_INLINE void multiply_panels(const float* left, std::int64_t units, const float* panels, std::int64_t end,
                                         float* product) const {
    for (std::int64_t j = 0; j < end; j += panel)
      multiply<Units, Rows, Vectors, false>(tile, panel, units, {left, units, 1}, panels + j * units, panel,
                                            product + j, score_step);
  }

  // Of a query's scores those of keys that it does not see become -infinity; keys from in.tokens on do not exist.
  METAFORMER_INLINE void mask(float* score, std::int64_t query, std::int64_t end) const {
    const auto visible = in.causal ? std::min(query + 1, in.tokens) : in.tokens;
    std::fill(score + std::min(visible, end), score + end, -infinity);
    if (in.segment == nullptr) return;
    const auto own = in.segment[query];
    for (std::int64_t j = 0; j < visible; ++j)
      if (in.segment[j] != own || own == -1) score[j] = -infinity;
  }

  METAFORMER_INLINE void score_tile(std::int64_t first, std::int64_t end) const {
    const auto count = std::min(tile, in.tokens - first);
    pack_rows<Packed, Element>(in.q, first, count, tile, queries, key_units);
    multiply_panels(queries, key_units, key_panels, end, weights);
    for (std::int64_t r = 0; r < count; ++r) mask(weights + r * score_step, first + r, end);
  }

  // What dropout multiplies the weights of 16 keys with.
  METAFORMER_INLINE Lanes kept(std::uint32_t row_bits, std::int64_t key) const {
    constexpr UnsignedLanes lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const float keep = 1 - in.dropout;
    const auto bits = scrambled(lane + static_cast<std::uint32_t>(key) + row_bits);
    const auto limit = static_cast<std::uint32_t>(static_cast<double>(keep) * 4294967295.0);
    return bits <= limit ? every_lane(1 / keep) : Lanes{};
  }
  METAFORMER_INLINE std::uint32_t row_bits(std::int64_t query) const {
    return scrambled(static_cast<std::uint32_t>(query) + scrambled(in.seed));
  }
};

}  // namespace metaformer::host_kernel
