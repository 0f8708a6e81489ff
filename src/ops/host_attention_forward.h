#pragma once
// A head of attention on the CPU, forward: softmax over the scores of a tile, then its mix of the values.

#include "ops/host_attention_head.h"

namespace metaformer::host_kernel {

template <class Element, class Units, int Rows, int Vectors>
struct ForwardHead : Head<Element, Units, Rows, Vectors> {
  using Base = Head<Element, Units, Rows, Vectors>;
  using Base::Base;
  using Base::in, Base::room, Base::score_step, Base::key_width, Base::value_width, Base::key_units, Base::value_units,
      Base::pairs, Base::queries, Base::weights, Base::weight_rows;
  using Base::keys, Base::values, Base::value_panels;

  // Of a tile's row.
  METAFORMER_INLINE void store_weights(std::int64_t row, std::int64_t key, Lanes weight) const {
    if constexpr (pairs)
      store_shorts(reinterpret_cast<std::uint16_t*>(weight_rows) + row * score_step + key, Units::rounded(weight));
    else
      store_lanes(weights + row * score_step + key, weight);
  }

  // Scores become exponentials relative to the greatest, without those that dropout takes; returns the sum of all.
  METAFORMER_INLINE float exponentiate(std::int64_t row, std::int64_t query, const KeyRange& range,
                                       float& greatest) const {
    const float* score = weights + row * score_step;
    Lanes most = every_lane(-infinity);
    for (std::int64_t j = 0; j < range.count; j += lane_count) {
      const Lanes s = load_lanes(score + j);
      most = s > most ? s : most;
    }
    greatest = greatest_of(most);
    Lanes total = {};
    const float scale = in.scale;  // what is read from `in` within the loop is read anew after every store
    const DropoutLanes mask(in.dropout);
    const bool drops = mask.drops();
    const Lanes offset = every_lane(greatest == -infinity ? 0.0f : greatest * in.scale);
    for (std::int64_t j = 0; j < range.count; j += lane_count) {
      const Lanes e = exp_of(load_lanes(score + j) * scale - offset);
      total += e;
      store_weights(row, j, drops ? e * this->kept(mask, query, range.begin + j) : e);
    }
    return sum_of(total);
  }

  METAFORMER_INLINE void run() {
    this->prepare(false);
    float* mixed = room.take(tile * value_width);
    const Left left = {pairs ? weight_rows : weights, score_step / Units::unit, 1};
    for (std::int64_t first = 0; first < in.queries; first += tile) {
      const auto range = this->keys_of_tile(first);
      const auto count = std::min(tile, in.queries - first);
      this->score_tile(first, range);
      float inverse[tile] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        float greatest;
        const float total = exponentiate(r, first + r, range, greatest);
        inverse[r] = total == 0 ? 0 : 1 / total;
        in.log_sum[first + r] = total == 0 ? infinity : greatest * in.scale + std::log(total);
      }
      multiply<Units, Rows, Vectors, false>(tile, value_width, range.count / Units::unit, left,
                                            this->from_key(values, range.begin, value_width), value_width, mixed,
                                            value_width);
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t c = 0; c < value_width; c += lane_count)
          store_lanes(mixed + r * value_width + c, load_lanes(mixed + r * value_width + c) * inverse[r]);
      unpack_rows<Element>(mixed, value_width, count, in.t, first);
    }
    zero_rows<Element>(in.t, in.queries, in.query_padding);
    std::fill_n(in.log_sum + in.queries, in.query_padding, infinity);
  }
};

}  // namespace metaformer::host_kernel
