#pragma once
// Small matrices in the registers of a warp, as the tensor cores take them (mma.sync m16n8k16, for fp32 m16n8k8): how
// they are loaded from tiles in shared memory, multiplied, and turned into one another. Of the four lanes that share a
// row, lane c holds columns 2 c and 2 c + 1 of a result.
//
// fp32: the hardware's layout of operands has columns c and c + 4 there. Since a sum over k may be taken in any order,
// k = c and k = c + 4 stand for columns 2 c and 2 c + 1 instead, in all operands alike; results are then operands
// without a shuffle.

#include <cstdint>

#include "gpu.h"

namespace metaformer::cuda {

struct Bf16 {
  using Element = std::uint16_t;
  static constexpr int depth = 16;  // terms of a sum that one instruction adds
  static GPU_DEVICE float to_float(Element x) { return gpu::from_bf16(x); }
  static GPU_DEVICE Element from_float(float x) { return gpu::to_bf16(x); }
};

struct Fp16 {
  using Element = std::uint16_t;
  static constexpr int depth = 16;
  static GPU_DEVICE float to_float(Element x) { return gpu::from_fp16(x); }
  static GPU_DEVICE Element from_float(float x) { return gpu::to_fp16(x); }
};

// fp32 in memory, products of inputs rounded to tf32 (10 bits).
struct Tf32 {
  using Element = float;
  static constexpr int depth = 8;
  static GPU_DEVICE float to_float(Element x) { return x; }
  static GPU_DEVICE Element from_float(float x) { return x; }
};

// fp32 in memory, each factor split into two of tf32: four products, nearly the accuracy of fp32.
struct Fp32 : Tf32 {};

template <class Format>
inline constexpr bool is_split = false;
template <>
inline constexpr bool is_split<Fp32> = true;

struct Left {  // 16 rows, `depth` columns
  unsigned r[4];
};
struct Right {  // `depth` rows, 8 columns
  unsigned r[2];
};
struct Sum {  // 16 rows, 8 columns: r[0], r[1] of row lane / 4, r[2], r[3] of the row 8 below
  float r[4];
};

GPU_DEVICE int lane_index() { return gpu::thread_index() % gpu::warp_size; }
GPU_DEVICE int warp_index() { return gpu::thread_index() / gpu::warp_size; }

template <class Format>
GPU_DEVICE unsigned pack(float low, float high) {
  return Format::from_float(low) | static_cast<unsigned>(Format::from_float(high)) << 16;
}

// tf32 inputs are rounded once, where they become operands; those of a split product when they are multiplied.
template <class Format>
GPU_DEVICE unsigned operand(float x) {
  if constexpr (is_split<Format>) {
    return gpu::bits_of(x);
  } else {
    return gpu::to_tf32(x);
  }
}

GPU_DEVICE void multiply_add(Bf16, Sum& c, const Left& a, const Right& b) { gpu::multiply_add_bf16(c.r, a.r, b.r); }
GPU_DEVICE void multiply_add(Fp16, Sum& c, const Left& a, const Right& b) { gpu::multiply_add_fp16(c.r, a.r, b.r); }
GPU_DEVICE void multiply_add(Tf32, Sum& c, const Left& a, const Right& b) { gpu::multiply_add_tf32(c.r, a.r, b.r); }

// x = high + low, both tf32: high rounded, low what is left, cut; it lacks at most the last bit of x. Four integer
// instructions, where gpu::to_tf32 alone takes four; should they turn a NaN into a number, low still is the NaN.
template <int Count>
GPU_DEVICE void split(const unsigned (&x)[Count], unsigned (&high)[Count], unsigned (&low)[Count]) {
  constexpr unsigned kept = 0xffffe000u, half = 0x1000u;  // the bits of a tf32, half of its last one
  GPU_UNROLL
  for (int i = 0; i < Count; ++i) {
    high[i] = (x[i] + half) & kept;
    low[i] = gpu::bits_of(gpu::float_of(x[i]) - gpu::float_of(high[i])) & kept;
  }
}

GPU_DEVICE void multiply_add(Fp32, Sum& c, const Left& a, const Right& b) {
  Left a_high, a_low;
  Right b_high, b_low;
  split(a.r, a_high.r, a_low.r);
  split(b.r, b_high.r, b_low.r);
  // Summed by themselves, the small ones first: c is rounded once. In p . p all of low x low are positive: left out,
  // they would add up.
  Sum product{{0, 0, 0, 0}};
  gpu::multiply_add_tf32(product.r, a_low.r, b_low.r);
  gpu::multiply_add_tf32(product.r, a_low.r, b_high.r);
  gpu::multiply_add_tf32(product.r, a_high.r, b_low.r);
  gpu::multiply_add_tf32(product.r, a_high.r, b_high.r);
  GPU_UNROLL
  for (int e = 0; e < 4; ++e) c.r[e] += product.r[e];
}

// A tile in shared memory: rows of `ld` elements.
template <class Format, int Ld>
struct Tile {
  using Element = typename Format::Element;
  static constexpr int ld = Ld;
  Element* data;

  GPU_DEVICE Element* at(int row, int column) const { return data + row * Ld + column; }
  GPU_DEVICE float value(int row, int column) const { return Format::to_float(*at(row, column)); }
};

// left[m][k] = tile[row + m][column + k].
template <class Format, int Ld>
GPU_DEVICE void load(Left& left, const Tile<Format, Ld>& tile, int row, int column) {
  const int lane = lane_index();
  if constexpr (Format::depth == 16) {
    gpu::load_matrices(left.r, tile.at(row + lane % 16, column + lane / 16 * 8));
  } else {
    const int r = row + lane / 4, c = column + 2 * (lane % 4);
    left.r[0] = operand<Format>(tile.value(r, c));
    left.r[1] = operand<Format>(tile.value(r + 8, c));
    left.r[2] = operand<Format>(tile.value(r, c + 1));
    left.r[3] = operand<Format>(tile.value(r + 8, c + 1));
  }
}

// The same over as many columns as the array holds, from `column` on.
template <class Format, int Count, int Ld>
GPU_DEVICE void load(Left (&left)[Count], const Tile<Format, Ld>& tile, int row, int column = 0) {
  GPU_UNROLL
  for (int k = 0; k < Count; ++k) load(left[k], tile, row, column + k * Format::depth);
}

// The reverse, in 16 bits, from column 0 on.
template <class Format, int Count, int Ld>
GPU_DEVICE void store(const Tile<Format, Ld>& tile, int row, const Left (&left)[Count]) {
  static_assert(Format::depth == 16);
  const int lane = lane_index();
  GPU_UNROLL
  for (int k = 0; k < Count; ++k) {
    GPU_UNROLL
    for (int e = 0; e < 4; ++e)
      gpu::store_pair(tile.at(row + lane / 4 + e % 2 * 8, k * Format::depth + e / 2 * 8 + 2 * (lane % 4)),
                      left[k].r[e]);
  }
}

// left[m][k] = tile[row + k][column + m].
template <class Format, int Ld>
GPU_DEVICE void load_transposed(Left& left, const Tile<Format, Ld>& tile, int row, int column) {
  const int lane = lane_index();
  if constexpr (Format::depth == 16) {
    gpu::load_matrices_transposed(left.r, tile.at(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
  } else {
    const int r = row + 2 * (lane % 4), c = column + lane / 4;
    left.r[0] = operand<Format>(tile.value(r, c));
    left.r[1] = operand<Format>(tile.value(r, c + 8));
    left.r[2] = operand<Format>(tile.value(r + 1, c));
    left.r[3] = operand<Format>(tile.value(r + 1, c + 8));
  }
}

// right[i][k][n] = tile[row + 8 i + n][column + k]: the transpose of what lies there, for scores.
template <class Format, int Ld>
GPU_DEVICE void load_transposed(Right (&right)[2], const Tile<Format, Ld>& tile, int row, int column) {
  const int lane = lane_index();
  if constexpr (Format::depth == 16) {
    unsigned r[4];
    gpu::load_matrices(r, tile.at(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
    right[0] = {{r[0], r[1]}};
    right[1] = {{r[2], r[3]}};
  } else {
    const int c = column + 2 * (lane % 4);
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int r = row + 8 * i + lane / 4;
      right[i] = {{operand<Format>(tile.value(r, c)), operand<Format>(tile.value(r, c + 1))}};
    }
  }
}

// right[i][k][n] = tile[row + k][column + 8 i + n], for mixing values.
template <class Format, int Ld>
GPU_DEVICE void load(Right (&right)[2], const Tile<Format, Ld>& tile, int row, int column) {
  const int lane = lane_index();
  if constexpr (Format::depth == 16) {
    unsigned r[4];
    gpu::load_matrices_transposed(r, tile.at(row + lane % 16, column + lane / 16 * 8));
    right[0] = {{r[0], r[1]}};
    right[1] = {{r[2], r[3]}};
  } else {
    const int r = row + 2 * (lane % 4);
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int c = column + 8 * i + lane / 4;
      right[i] = {{operand<Format>(tile.value(r, c)), operand<Format>(tile.value(r + 1, c))}};
    }
  }
}

// The value that an element has once it is an operand.
template <class Format>
GPU_DEVICE float rounded(float x) {
  if constexpr (Format::depth == 16) {
    return Format::to_float(Format::from_float(x));
  } else {
    return gpu::float_of(operand<Format>(x));
  }
}

// A result of 16 x 8 Count becomes the left side of a product over its columns.
template <class Format, int Count>
GPU_DEVICE void to_left(Left (&left)[Count * 8 / Format::depth], const Sum (&sum)[Count]) {
  GPU_UNROLL
  for (int i = 0; i < Count * 8 / Format::depth; ++i) {
    if constexpr (Format::depth == 16) {
      const auto &a = sum[2 * i].r, &b = sum[2 * i + 1].r;
      left[i] = {
          {pack<Format>(a[0], a[1]), pack<Format>(a[2], a[3]), pack<Format>(b[0], b[1]), pack<Format>(b[2], b[3])}};
    } else {
      const auto& a = sum[i].r;
      left[i] = {{operand<Format>(a[0]), operand<Format>(a[2]), operand<Format>(a[1]), operand<Format>(a[3])}};
    }
  }
}

// Adds this lane's entries of a left side to the sums of its rows lane / 4 and 8 below.
template <class Format>
GPU_DEVICE void add_rows(float (&sum)[2], const Left& left) {
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (Format::depth == 16) {
      const auto low = static_cast<std::uint16_t>(left.r[i]), high = static_cast<std::uint16_t>(left.r[i] >> 16);
      sum[i % 2] += Format::to_float(low) + Format::to_float(high);
    } else {
      sum[i % 2] += gpu::float_of(left.r[i]);
    }
  }
}

// The reverse of to_left, in 16 bits: the rounded results.
template <class Format, int Count>
GPU_DEVICE void from_left(Sum (&sum)[Count], const Left (&left)[Count * 8 / Format::depth]) {
  static_assert(Format::depth == 16);
  GPU_UNROLL
  for (int i = 0; i < Count / 2; ++i) {
    GPU_UNROLL
    for (int e = 0; e < 4; ++e) {
      float* at = &sum[2 * i + e / 2].r[2 * (e % 2)];
      at[0] = Format::to_float(static_cast<std::uint16_t>(left[i].r[e]));
      at[1] = Format::to_float(static_cast<std::uint16_t>(left[i].r[e] >> 16));
    }
  }
}

// Adds the products of this lane's entries of two left sides in 16 bits to the sums of its rows lane / 4 and 8 below.
template <class Format>
GPU_DEVICE void add_products(float (&sum)[2], const Left& a, const Left& b) {
  static_assert(Format::depth == 16);
  const auto low = [](unsigned both) { return Format::to_float(static_cast<std::uint16_t>(both)); };
  const auto high = [](unsigned both) { return Format::to_float(static_cast<std::uint16_t>(both >> 16)); };
  GPU_UNROLL
  for (int e = 0; e < 4; ++e) sum[e % 2] += low(a.r[e]) * low(b.r[e]) + high(a.r[e]) * high(b.r[e]);
}

template <int Count>
GPU_DEVICE void clear(Sum (&sum)[Count]) {
  GPU_UNROLL
  for (int i = 0; i < Count; ++i) sum[i] = {{0, 0, 0, 0}};
}

// sum[r][m][n] += sum_k left[r][m][k] tile[row + n][k] over all columns of sum and all k of left. A loaded operand
// serves all Blocks of 16 rows.
template <class Format, int Blocks, int Columns, int Steps, int Ld>
GPU_DEVICE void multiply_transposed(Sum (&sum)[Blocks][Columns], const Left (&left)[Blocks][Steps],
                                    const Tile<Format, Ld>& tile, int row) {
  GPU_UNROLL
  for (int n = 0; n < Columns; n += 2) {
    GPU_UNROLL
    for (int k = 0; k < Steps; ++k) {
      Right right[2];
      load_transposed(right, tile, row + 8 * n, k * Format::depth);
      GPU_UNROLL
      for (int block = 0; block < Blocks; ++block) {
        multiply_add(Format(), sum[block][n], left[block][k], right[0]);
        multiply_add(Format(), sum[block][n + 1], left[block][k], right[1]);
      }
    }
  }
}

// The same with the left side read when it is needed, 16 rows from `left_row` of its tile: for widths whose rows do not
// stay in registers.
template <class Format, int Columns, int LeftLd, int Ld>
GPU_DEVICE void multiply_transposed(Sum (&sum)[1][Columns], const Tile<Format, LeftLd>& left_tile, int left_row,
                                    int width, const Tile<Format, Ld>& tile, int row) {
  GPU_UNROLL
  for (int n = 0; n < Columns; n += 2) {
    GPU_UNROLL_BY(4)  // what is wider would be loaded ahead into too many registers
    for (int k = 0; k < width; k += Format::depth) {
      Left left;
      Right right[2];
      load(left, left_tile, left_row, k);
      load_transposed(right, tile, row + 8 * n, k);
      multiply_add(Format(), sum[0][n], left, right[0]);
      multiply_add(Format(), sum[0][n + 1], left, right[1]);
    }
  }
}

// sum[r][m][n] += sum_k left[r][m][k] tile[row + k][n].
template <class Format, int Blocks, int Columns, int Steps, int Ld>
GPU_DEVICE void multiply(Sum (&sum)[Blocks][Columns], const Left (&left)[Blocks][Steps], const Tile<Format, Ld>& tile,
                         int row) {
  GPU_UNROLL
  for (int k = 0; k < Steps; ++k) {
    GPU_UNROLL
    for (int n = 0; n < Columns; n += 2) {
      Right right[2];
      load(right, tile, row + k * Format::depth, 8 * n);
      GPU_UNROLL
      for (int block = 0; block < Blocks; ++block) {
        multiply_add(Format(), sum[block][n], left[block][k], right[0]);
        multiply_add(Format(), sum[block][n + 1], left[block][k], right[1]);
      }
    }
  }
}

}  // namespace metaformer::cuda
