#pragma once
// Backward without atomics, every sum in a fixed order:
//
//   delta_i = dt_i . t_i,  dS = P (m dt p^T - delta)          P = exp2(scores - log2_sum), m: dropout, drawn again
//   dq = scale a dS p  [distance: - (rho + c) p]              a = 1, or 2 for a distance
//   dp = dq M^T + (m P)^T dt + scale a dS^T q  [distance: - (rho + c) q]
//
// with rho_i = scale sum_j dS_ij and c_j = scale sum_i dS_ij, the diagonal of dS being 0 for a distance (a point's
// distance to itself is 0). rho is 0 but for rounding; without it the gradient of M drowns in low precision.
//
// Where keys are other tokens y, dq and the first part of dp are of the queries, without c. The rest of dp is of the
// keys, which for a distance have a dq, too: dq = - c y, dy = (m P)^T dt + scale a dS^T q - 2 c y M. The gradient of M
// is p^T dq over all tokens.
//
// One kernel goes over all pairs once (metric_backward_pass.h); small ones prepare and finish it
// (metric_backward_ends.h).

#include <cmath>
#include <type_traits>

#include "cuda/metric_launch.h"
#include "cuda/metric_tiles.h"

namespace metaformer::cuda {

// The counter of the turns at a head's tile of queries.
GPU_DEVICE unsigned* turn_at(const MetricBackward& backward, const Place& place, std::int64_t tile) {
  const auto& in = backward.in;
  return backward.turns + (place.batch * in.heads + place.head) * tile_count(in.queries.tokens, turn_rows) + tile;
}

// Where the pass keeps dq of the dq_sum_rows queries from `query` on, in the order of its lanes: the four numbers that
// this lane holds of the first 8 columns. Those of the next 8 columns lie a warp further.
template <int Width>
GPU_DEVICE float* dq_sum_at(const MetricBackward& backward, const Place& place, std::int64_t query) {
  const auto& in = backward.in;
  const auto groups = tile_count(in.queries.tokens, dq_sum_rows);
  const auto group = (place.batch * in.heads + place.head) * groups + query / dq_sum_rows;
  return backward.dq_sum + group * dq_sum_rows * Width + 4 * lane_index();
}
constexpr int dq_sum_step = 4 * gpu::warp_size;

// Nothing where nothing is dropped.
struct NoDropout {
  GPU_DEVICE explicit NoDropout(const MetricInputs&) {}
  GPU_DEVICE std::int64_t place(const Place&, std::int64_t, std::int64_t) const { return 0; }
  GPU_DEVICE float at(std::int64_t) const { return 1; }
};
template <bool Drops>
using DropoutOf = std::conditional_t<Drops, WeightDropout, NoDropout>;

// What the pass knows of a score.
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
