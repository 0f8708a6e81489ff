#pragma once
// The operands of a head's products on the CPU, in the forms that products take, and the products of whole tiles.

#include <algorithm>
#include <type_traits>

#include "base/vector_math.h"
#include "ops/host_attention_products.h"

namespace metaformer::host_kernel {

constexpr std::int64_t tile = 32;  // queries

// A tile's matrix as the left side of a product: rows as they lie, for a sum over columns, or columns, for one over
// rows.
struct Sides {
  Left rows, columns;
};

// Operands packed in Units.
template <class Element, class Units, int Rows, int Vectors>
struct Packing {
  static constexpr bool pairs = Units::unit == 2;
  using Packed = std::conditional_t<pairs, std::uint16_t, float>;

  HeadWorkspace& room;

  // `padded` rows of `units`, zeros behind the first `count`.
  METAFORMER_INLINE float* packed_rows(const HeadRows& from, std::int64_t count, std::int64_t padded,
                                       std::int64_t units) const {
    float* rows = room.take(padded * units);
    pack_rows<Packed, Element>(from, 0, count, padded, rows, units);
    return rows;
  }

  // The right side of a product whose depth is the width of these packed rows.
  METAFORMER_INLINE const float* transposed(const float* rows, std::int64_t count, std::int64_t units) const {
    float* panels = room.take(count * units);
    transpose(rows, count, units, panels);
    return panels;
  }

  // The right side of a product whose depth these packed rows are.
  METAFORMER_INLINE const float* along_rows(const float* rows, std::int64_t count, std::int64_t width) const {
    if constexpr (!pairs) return rows;
    float* units = room.take(count / 2 * width);
    pair_rows(rows, count, width, units);
    return units;
  }

  // product[i][j] = left_i . (row j of what `panels` is the transpose of), for `count` rows, in whole panels.
  METAFORMER_INLINE void multiply_panels(const float* left, std::int64_t units, const float* panels, std::int64_t count,
                                         float* product, std::int64_t step) const {
    for (std::int64_t j = 0; j < count; j += panel)
      multiply<Units, Rows, Vectors, false>(tile, panel, units, {left, units, 1}, panels + j * units, panel,
                                            product + j, step);
  }

  // Of a tile of `width` columns, `step` apart; packed rows, if of pairs, in `rows`.
  METAFORMER_INLINE Sides sides_of(const float* x, std::int64_t width, std::int64_t step, float* rows) const {
    if constexpr (!pairs) {
      return {{x, step, 1}, {x, 1, step}};
    } else {
      auto* shorts = reinterpret_cast<std::uint16_t*>(rows);
      float* in_pairs = room.take(tile * step / 2);
      for (std::int64_t r = 0; r < tile; r += 2) {
        for (std::int64_t j = 0; j < width; j += lane_count) {
          const auto even = r * step + j, odd = even + step;
          const auto above = Units::rounded(load_lanes(x + even)), below = Units::rounded(load_lanes(x + odd));
          store_shorts(shorts + even, above);
          store_shorts(shorts + odd, below);
          store_lanes(in_pairs + r / 2 * step + j, paired(above, below));
        }
      }
      return {{rows, step / 2, 1}, {in_pairs, 1, step}};
    }
  }
};

}  // namespace metaformer::host_kernel
