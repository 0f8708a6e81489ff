#pragma once
// Products of the small matrices of a head of attention (host_attention_kernel.cpp), and how their operands are packed:
// in units of 32 bits, either a float each or a pair of bfloat16 that are neighbours along the depth of the product.
//
// Everything is inlined into functions that are compiled for an instruction set.

#include <algorithm>
#include <cstdint>

#include "base/vector_math.h"
#include "ops/head_attention.h"

namespace metaformer::host_kernel {

constexpr std::int64_t panel = 32;  // columns of a transposed operand that lie together

constexpr std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

// A unit is a float.
struct Floats {
  static constexpr std::int64_t unit = 1;

  METAFORMER_INLINE static Lanes every(const float& a) { return every_lane(a); }
  METAFORMER_INLINE static Lanes plus_product(Lanes total, Lanes a, Lanes b) { return total + a * b; }
};

#ifdef __x86_64__
// One load where the compiler would add to zeros and then repeat the sum.
METAFORMER_INLINE Lanes every_lane_by_avx512(const float& a) {
  Lanes every;
  asm("vbroadcastss %1, %0" : "=v"(every) : "m"(a));
  return every;
}

struct Avx512Floats : Floats {
  METAFORMER_INLINE static Lanes every(const float& a) { return every_lane_by_avx512(a); }
};

// A unit is two bfloat16, multiplied and summed in float32 by AVX512-BF16: twice the products per instruction.
struct Bf16Pairs {
  static constexpr std::int64_t unit = 2;

  METAFORMER_INLINE static Lanes every(const float& a) { return every_lane_by_avx512(a); }
  METAFORMER_INLINE static Lanes plus_product(Lanes total, Lanes a, Lanes b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(a), "v"(b));
    return total;
  }
  METAFORMER_INLINE static ShortLanes rounded(Lanes x) {
    ShortLanes narrow;
    asm("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(x));
    return narrow;
  }
};
#endif

// Units (row, column) of the left side of a product lie at row * row_step + column * column_step.
struct Left {
  const float* data;
  std::int64_t row_step, column_step;
};

// sum[Rows][16 Vectors] (+)= left right over `depth` units; rows of `right` are `right_step` apart.
template <class Units, int Rows, int Vectors, bool Accumulate>
METAFORMER_INLINE void multiply_block(const Left& left, const float* right, std::int64_t right_step, std::int64_t depth,
                                      float* sum, std::int64_t sum_step) {
  Lanes total[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      total[r][v] = Accumulate ? load_lanes(sum + r * sum_step + v * lane_count) : Lanes{};
  for (std::int64_t l = 0; l < depth; ++l) {
    Lanes b[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) b[v] = load_lanes(right + l * right_step + v * lane_count);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const Lanes a = Units::every(left.data[r * left.row_step + l * left.column_step]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) total[r][v] = Units::plus_product(total[r][v], a, b[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store_lanes(sum + r * sum_step + v * lane_count, total[r][v]);
}

// `rows` a multiple of Rows, `columns` of 16.
template <class Units, int Rows, int Vectors, bool Accumulate>
METAFORMER_INLINE void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Left& left,
                                const float* right, std::int64_t right_step, float* sum, std::int64_t sum_step) {
  std::int64_t n = 0;
  for (; n + Vectors * lane_count <= columns; n += Vectors * lane_count)
    for (std::int64_t m = 0; m < rows; m += Rows)
      multiply_block<Units, Rows, Vectors, Accumulate>({left.data + m * left.row_step, left.row_step, left.column_step},
                                                       right + n, right_step, depth, sum + m * sum_step + n, sum_step);
  for (; n < columns; n += lane_count)
    for (std::int64_t m = 0; m < rows; m += Rows)
      multiply_block<Units, Rows, 1, Accumulate>({left.data + m * left.row_step, left.row_step, left.column_step},
                                                 right + n, right_step, depth, sum + m * sum_step + n, sum_step);
}

// Rows as units of Packed (float or bfloat16), `step` units apart; zeros from `width` on and from row `count` up to
// `padded`.
template <class Packed, class Element>
METAFORMER_INLINE void pack_rows(const HeadRows& from, std::int64_t first, std::int64_t count, std::int64_t padded,
                                 float* units, std::int64_t step) {
  const auto columns = step * static_cast<std::int64_t>(sizeof(float) / sizeof(Packed));
  auto* to = reinterpret_cast<Packed*>(units);
  for (std::int64_t r = 0; r < padded; ++r, to += columns) {
    std::int64_t c = 0;
    if (r < count) {
      const auto* row = static_cast<const Element*>(from.data) + (first + r) * from.stride;
      for (; c + lane_count <= from.width; c += lane_count) copy_lanes(row + c, to + c);
      Element rest[lane_count] = {};
      std::copy(row + c, row + from.width, rest);
      if (c < from.width) copy_lanes(rest, to + c);
      c = round_up(from.width, lane_count);
    }
    std::fill(to + c, to + columns, Packed{});
  }
}

template <class Element>
METAFORMER_INLINE void unpack_rows(const float* from, std::int64_t step, std::int64_t count, const HeadRows& to,
                                   std::int64_t first) {
  for (std::int64_t r = 0; r < count; ++r, from += step) {
    auto* row = static_cast<Element*>(to.data) + (first + r) * to.stride;
    std::int64_t c = 0;
    for (; c + lane_count <= to.width; c += lane_count) store_lanes(row + c, load_lanes(from + c));
    if (c == to.width) continue;
    Element rest[lane_count];
    store_lanes(rest, load_lanes(from + c));
    std::copy_n(rest, to.width - c, row + c);
  }
}

template <class Element>
METAFORMER_INLINE void zero_rows(const HeadRows& to, std::int64_t first, std::int64_t count) {
  for (std::int64_t r = first; r < first + count; ++r)
    std::fill_n(static_cast<Element*>(to.data) + r * to.stride, to.width, Element{});
}

// The transpose of packed rows of `width` units: panels of 32 tokens, in each `width` rows of 32.
METAFORMER_INLINE void transpose(const float* rows, std::int64_t tokens, std::int64_t width, float* panels) {
  for (std::int64_t token = 0; token < tokens; token += lane_count) {
    float* to = panels + token / panel * panel * width + token % panel;
    for (std::int64_t c = 0; c < width; c += lane_count) {
      Lanes block[lane_count];
#pragma GCC unroll 16
      for (int i = 0; i < lane_count; ++i) block[i] = load_lanes(rows + (token + i) * width + c);
      transpose_lanes(block);
#pragma GCC unroll 16
      for (int i = 0; i < lane_count; ++i) store_lanes(to + (c + i) * panel, block[i]);
    }
  }
}

// Sixteen pairs of an even row's element and the odd row's below it.
METAFORMER_INLINE Lanes paired(ShortLanes even, ShortLanes odd) {
  return reinterpret_cast<Lanes>(__builtin_convertvector(even, UnsignedLanes) |
                                 __builtin_convertvector(odd, UnsignedLanes) << 16);
}

// Packed bfloat16 rows, `width` apart, as pairs along the rows: rows / 2 of `width` units. An even number of rows.
METAFORMER_INLINE void pair_rows(const float* units, std::int64_t rows, std::int64_t width, float* pairs) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(units);
  for (std::int64_t r = 0; r < rows; r += 2, from += 2 * width, pairs += width)
    for (std::int64_t c = 0; c < width; c += lane_count)
      store_lanes(pairs + c, paired(load_shorts(from + c), load_shorts(from + width + c)));
}

}  // namespace metaformer::host_kernel
