#pragma once
// Products of the small matrices of a head of attention. Their operands are in units of 32 bits, either a float each or
// a pair of bfloat16 that are neighbours along the depth of the product.
//
// Everything is inlined into functions that are compiled for an instruction set (run_with_vector_code).

#include <cstdint>
#include <limits>

#include "cpu/vector_code.h"
#include "cpu/vector_math.h"

namespace metaformer::host_kernel {

constexpr float infinity = std::numeric_limits<float>::infinity();

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

// Writes 16 x 16 units transposed; rows are `from_step` and `to_step` apart.
METAFORMER_INLINE void transpose_block(const float* from, std::int64_t from_step, float* to, std::int64_t to_step) {
  Lanes block[lane_count];
#pragma GCC unroll 16
  for (int i = 0; i < lane_count; ++i) block[i] = load_lanes(from + i * from_step);
  transpose_lanes(block);
#pragma GCC unroll 16
  for (int i = 0; i < lane_count; ++i) store_lanes(to + i * to_step, block[i]);
}

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

// Calls run.with<Units, Rows, Vectors>(), an inlined function, compiled for the instructions of `code`. Blocks are as
// large as the registers of each instruction set hold.
#ifdef __x86_64__
template <class Run>
__attribute__((target("arch=x86-64-v4"))) void run_with_avx512(const Run& run) {
  run.template with<Avx512Floats, 8, 2>();
}
template <class Run>
__attribute__((target("arch=x86-64-v3"))) void run_with_avx2(const Run& run) {
  run.template with<Floats, 4, 1>();
}
#endif
template <class Run>
void run_with_vector_code(VectorCode code, const Run& run) {
#ifdef __x86_64__
  if (code >= VectorCode::avx512) return run_with_avx512(run);
  if (code == VectorCode::avx2) return run_with_avx2(run);
#endif
  run.template with<Floats, 2, 1>();
}

}  // namespace metaformer::host_kernel
