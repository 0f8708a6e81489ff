#pragma once
// A head of attention on the CPU, backward: weights are computed again from the scores and the stored logsumexp.

#include "ops/host_attention_head.h"

namespace metaformer::host_kernel {

template <class Element, class Units, int Rows, int Vectors>
struct BackwardHead : Head<Element, Units, Rows, Vectors> {
  using Base = Head<Element, Units, Rows, Vectors>;
  using Base::Base;
  using Base::in, Base::room, Base::all_keys, Base::score_step, Base::key_width, Base::value_width, Base::key_units,
      Base::value_units, Base::pairs, Base::queries, Base::weights, Base::weight_rows, Base::distances;
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
  METAFORMER_INLINE void weigh(std::int64_t first, const KeyRange& range, float* slopes) const {
    const float scale = in.scale;
    const DropoutLanes mask(in.dropout);
    const bool drops = mask.drops();
    for (std::int64_t r = 0; r < tile; ++r) {
      const bool exists = first + r < in.queries;
      const float log_sum = exists ? in.log_sum[first + r] : infinity;
      const float delta = exists ? delta_of(first + r) : 0;
      float *weight = weights + r * score_step, *slope = slopes + r * score_step;
      if (!(log_sum < infinity) && log_sum == log_sum) {  // sees nothing, or is not there
        std::fill_n(weight, range.count, 0.0f);
        std::fill_n(slope, range.count, 0.0f);
        continue;
      }
      for (std::int64_t j = 0; j < range.count; j += lane_count) {
        const Lanes p = exp_of(load_lanes(weight + j) * scale - log_sum);
        const Lanes m = drops ? this->kept(mask, first + r, range.begin + j) : every_lane(1);
        store_lanes(weight + j, m * p);
        store_lanes(slope + j, p * (m * load_lanes(slope + j) - delta) * scale);
      }
    }
  }

  METAFORMER_INLINE void run() {
    this->prepare(true);
    float* dt = room.take(tile * value_units);
    float* slopes = room.take(tile * score_step);
    float* dq = room.take(tile * key_width);
    float* dk = room.take(all_keys * key_width);
    float* dv = in.shares_values() ? dk : room.take(all_keys * value_width);
    std::fill(dk, dk + all_keys * key_width, 0.0f);
    std::fill(dv, dv + all_keys * value_width, 0.0f);
    const auto of_tile = room.mark();
    for (std::int64_t first = 0; first < in.queries; first += tile, room.rewind(of_tile)) {
      const auto range = this->keys_of_tile(first);
      const auto count = std::min(tile, in.queries - first);
      this->score_tile(first, range);
      pack_rows<Packed, Element>(in.dt, first, count, tile, dt, value_units);
      this->multiply_panels(dt, value_units, value_panels + range.begin * value_units, range.count, slopes, score_step);
      weigh(first, range, slopes);
      const auto slope = this->sides_of(slopes, range.count, score_step, weight_rows);
      const auto* of_queries = this->along_rows(queries, tile, key_width);
      multiply<Units, Rows, Vectors, false>(tile, key_width, range.count / Units::unit, slope.rows,
                                            this->from_key(keys, range.begin, key_width), key_width, dq, key_width);
      unpack_rows<Element>(dq, key_width, count, in.dq, first);
      multiply<Units, Rows, Vectors, true>(range.count, key_width, tile / Units::unit, slope.columns, of_queries,
                                           key_width, dk + range.begin * key_width, key_width);
      const auto weight = this->sides_of(weights, range.count, score_step, weight_rows);
      const auto* of_dt = this->along_rows(dt, tile, value_width);
      multiply<Units, Rows, Vectors, true>(range.count, value_width, tile / Units::unit, weight.columns, of_dt,
                                           value_width, dv + range.begin * value_width, value_width);
      if (distances.any()) distances.add_gradients(first, range.begin, range.count, slopes, score_step);
    }
    unpack_rows<Element>(dk, key_width, in.keys, in.dk, 0);
    if (!in.shares_values()) unpack_rows<Element>(dv, value_width, in.keys, in.dv, 0);
    zero_rows<Element>(in.dq, in.queries, in.query_padding);
    zero_rows<Element>(in.dk, in.keys, in.key_padding);
    if (!in.shares_values()) zero_rows<Element>(in.dv, in.keys, in.key_padding);
    distances.store_gradients();
  }
};

}  // namespace metaformer::host_kernel
