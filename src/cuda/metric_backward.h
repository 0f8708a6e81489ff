#pragma once
// Backward in two kernels without atomics: one block per tile of queries gives dq, one per tile of keys gives dp; every
// sum has one owner and a fixed order. Neither the weights nor their gradients leave registers.
//
//   delta_i = dt_i . t_i,  dS = P (m dt p^T - delta)          P = exp2(scores - log2_sum), m: dropout, drawn again
//   dq = scale a dS p  [distance: - rho p - c p]               a = 1, or 2 for a distance
//   dp = dq M^T + (m P)^T dt + scale a dS^T q  [distance: - (rho + c) q]
//
// with rho_i = scale sum_j dS_ij and c_j = scale sum_i dS_ij, the diagonal of dS being 0 for a distance (a point's
// distance to itself is 0). rho is 0 but for rounding; without it the gradient of M drowns in low precision. The row
// kernel leaves out c, which only the column kernel knows; that one puts it into both results.

#include <cmath>
#include <type_traits>

#include "cuda/metric_tiles.h"

namespace metaformer::cuda {

template <class Format, int Width>
struct BackwardShape {
  using Element = typename Format::Element;
  static constexpr int warps = 4, threads = warps * gpu::warp_size;
  static constexpr int rows = 16 * warps;  // that a block owns
  static constexpr bool narrow = sizeof(Element) == 2;
  // Rows of the tiles that pass by: as many as registers allow, those of split operands the fewest.
  static constexpr bool wide = !narrow && (Width > 96 || (is_split<Format> && Width > 32));
  static constexpr int streamed = narrow && Width <= 64 ? 64 : wide ? 16 : 32;
  static constexpr int ld = padded_row<Format, Width>;

  // Whether what a block owns stays in registers, so that streamed tiles may take its place.
  static constexpr bool keeps_rows = !wide && (!is_split<Format> || Width <= 16);

  // Row kernel: two streamed tiles, and what the block owns of q and dt.
  static constexpr int first_key_row = keeps_rows ? 0 : 2 * rows;
  static constexpr int row_tiles = first_key_row + (2 * rows > 2 * streamed && keeps_rows ? 2 * rows : 2 * streamed);
  static constexpr int row_tile_bytes = row_tiles * ld * static_cast<int>(sizeof(Element));
  static constexpr int row_shared_bytes = row_tile_bytes + 2 * streamed * 8;  // segments and biases

  // Column kernel: two streamed tiles of q and of dt, or what the block owns of p and the metric.
  static constexpr int first_query_row = keeps_rows ? 0 : rows;
  static constexpr int form_rows = metric_rows<Format, Width>;  // a part of the metric
  static constexpr int column_tiles =
      first_query_row + (rows + form_rows > 4 * streamed ? rows + form_rows : 4 * streamed);
  static constexpr int column_tile_bytes = column_tiles * ld * static_cast<int>(sizeof(Element));
  static constexpr int column_shared_bytes = column_tile_bytes + 2 * streamed * 12;  // segments, log2 sums, deltas
  static_assert(row_shared_bytes <= most_shared_bytes && column_shared_bytes <= most_shared_bytes);
};

// Nothing where nothing is dropped.
struct NoDropout {
  GPU_DEVICE explicit NoDropout(const MetricInputs&) {}
  GPU_DEVICE float at(std::int64_t) const { return 1; }
};
template <bool Drops>
using DropoutOf = std::conditional_t<Drops, WeightDropout, NoDropout>;

// What both kernels know of a score.
struct ScoreRule {
  const MetricInputs& in;
  float exponent;  // of 2, per unit of q . p + half_bias
  float gradient;  // of the score, per unit of q . p

  GPU_DEVICE explicit ScoreRule(const MetricInputs& inputs)
      : in(inputs), exponent(score_gradient(inputs) * log2_e), gradient(score_gradient(inputs)) {}

  // m P and, in place of dt p^T, dS.
  GPU_DEVICE void weigh(float& product, float& gradient_of_weight, bool visible, bool diagonal, float half_bias,
                        float log2_sum, float delta, float m) const {
    const float score = in.distance ? product + half_bias : product;
    const float weight = visible ? gpu::exp2_approximate(gpu::fused_multiply_add(score, exponent, -log2_sum)) : 0.0f;
    gradient_of_weight = in.distance && diagonal ? 0.0f : weight * (m * gradient_of_weight - delta);
    product = m * weight;
  }
};

}  // namespace metaformer::cuda
