#pragma once
// A head of attention on the CPU, backward: weights are computed again from the scores and the stored logsumexp.

#include "ops/host_attention_head.h"

namespace metaformer::host_kernel {

template <class Element, class Units, int Rows, int Vectors>
struct BackwardHead : Head<Element, Units, Rows, Vectors> {
  using Base = Head<Element, Units, Rows, Vectors>;
  using Base::in, Base::room, Base::tokens, Base::score_step, Base::key_width, Base::value_width, Base::key_units,
      Base::value_units, Base::pairs, Base::queries, Base::weights, Base::weight_rows;
  using Base::keys, Base::values, Base::value_panels;
  using typename Base::Packed;

  // dt_i . t_i
  METAFORMER_INLINE float delta_of(std::int64_t query) const {
    const auto* t = static_cast<const Element*>(in.t.data) + query * in.t.stride;
    const auto* dt = static_cast<const Element*>(in.dt.data) + query * in.dt.stride;
    Lanes total = {};
    std::int64_t c = 0;
    for (; c + lane_count <= in.t.width; c += lane_count) total += load_lanes(dt + c) * load_lanes(t + c);
    Element rest_of_t[lane_count] = {}, rest_of_dt[lane_count] = {};
    std::copy(t + c, t + in.t.width, rest_of_t);
    std::copy(dt + c, dt + in.t.width, rest_of_dt);
    if (c < in.t.width) total += load_lanes(rest_of_dt) * load_lanes(rest_of_t);
    return sum_of(total);
  }

  // weights become P, `slopes` (dP) become scale P (dP - delta); with dropout m: m P, and scale P (m dP - delta).
  METAFORMER_INLINE void weigh(std::int64_t first, std::int64_t end, float* slopes) const {
    const float scale = in.scale;
    const bool drops = in.dropout > 0;
    for (std::int64_t r = 0; r < tile; ++r) {
      const bool exists = first + r < in.tokens;
      const float log_sum = exists ? in.log_sum[first + r] : infinity;
      const float delta = exists ? delta_of(first + r) : 0;
      float *weight = weights + r * score_step, *slope = slopes + r * score_step;
      if (!(log_sum < infinity) && log_sum == log_sum) {  // sees nothing, or is not there
        std::fill(weight, weight + end, 0.0f);
        std::fill(slope, slope + end, 0.0f);
        continue;
      }
      const auto drawn = this->row_bits(first + r);
      for (std::int64_t j = 0; j < end; j += lane_count) {
        const Lanes p = exp_of(load_lanes(weight + j) * scale - log_sum);
        const Lanes m = drops ? this->kept(drawn, j) : every_lane(1);
        store_lanes(weight + j, m * p);
        store_lanes(slope + j, p * (m * load_lanes(slope + j) - delta) * scale);
      }
    }
  }

  // Weights and slopes as the left sides of backward's products: along keys, or transposed along queries.
  struct Sides {
    Left slopes, slopes_transposed, weights_transposed;
  };
  METAFORMER_INLINE Sides sides_of(std::int64_t end, const float* slopes) const {
    if constexpr (!pairs) {
      return {{slopes, score_step, 1}, {slopes, 1, score_step}, {weights, 1, score_step}};
    } else {
      auto* rows = reinterpret_cast<std::uint16_t*>(weight_rows);
      float* slope_pairs = room.take(tile * score_step / 2);
      float* weight_pairs = room.take(tile * score_step / 2);
      for (std::int64_t r = 0; r < tile; r += 2) {
        for (std::int64_t j = 0; j < end; j += lane_count) {
          const auto even = r * score_step + j, odd = even + score_step, pair = r / 2 * score_step + j;
          const auto s = Units::rounded(load_lanes(slopes + even)), below = Units::rounded(load_lanes(slopes + odd));
          store_shorts(rows + even, s);
          store_shorts(rows + odd, below);
          store_lanes(slope_pairs + pair, paired(s, below));
          store_lanes(weight_pairs + pair,
                      paired(Units::rounded(load_lanes(weights + even)), Units::rounded(load_lanes(weights + odd))));
        }
      }
      return {{weight_rows, score_step / 2, 1}, {slope_pairs, 1, score_step}, {weight_pairs, 1, score_step}};
    }
  }

  METAFORMER_INLINE void run() {
    this->prepare(true);
    float* dt = room.take(tile * value_units);
    float* slopes = room.take(tile * score_step);
    float* dq = room.take(tile * key_width);
    float* dk = room.take(tokens * key_width);
    float* dv = in.shares_values() ? dk : room.take(tokens * value_width);
    std::fill(dk, dk + tokens * key_width, 0.0f);
    std::fill(dv, dv + tokens * value_width, 0.0f);
    const auto of_tile = room.mark();
    for (std::int64_t first = 0; first < in.tokens; first += tile, room.rewind(of_tile)) {
      const auto end = this->end_of_keys(first), count = std::min(tile, in.tokens - first);
      this->score_tile(first, end);
      pack_rows<Packed, Element>(in.dt, first, count, tile, dt, value_units);
      this->multiply_panels(dt, value_units, value_panels, end, slopes);
      weigh(first, end, slopes);
      const auto left = sides_of(end, slopes);
      const auto* of_queries = this->along_rows(queries, tile, key_width);
      const auto* of_dt = this->along_rows(dt, tile, value_width);
      multiply<Units, Rows, Vectors, false>(tile, key_width, end / Units::unit, left.slopes, keys, key_width, dq,
                                            key_width);
      unpack_rows<Element>(dq, key_width, count, in.dq, first);
      multiply<Units, Rows, Vectors, true>(end, key_width, tile / Units::unit, left.slopes_transposed, of_queries,
                                           key_width, dk, key_width);
      multiply<Units, Rows, Vectors, true>(end, value_width, tile / Units::unit, left.weights_transposed, of_dt,
                                           value_width, dv, value_width);
    }
    unpack_rows<Element>(dk, key_width, in.tokens, in.dk, 0);
    if (!in.shares_values()) unpack_rows<Element>(dv, value_width, in.tokens, in.dv, 0);
    zero_rows<Element>(in.dq, in.tokens, in.padding);
    zero_rows<Element>(in.dk, in.tokens, in.padding);
    if (!in.shares_values()) zero_rows<Element>(in.dv, in.tokens, in.padding);
  }
};

}  // namespace metaformer::host_kernel
