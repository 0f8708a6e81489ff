#include "cpu/attention.h"

#include "cpu/attention_products.h"

// A head of attention on the CPU, forward: softmax over the scores of a tile, then its mix of the values.

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

// A head of attention on the CPU, backward: weights are computed again from the scores and the stored logsumexp.

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

namespace metaformer {

using namespace host_kernel;

namespace {

template <class Element, class Units, int Rows, int Vectors>
METAFORMER_INLINE void run(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  if (backward)
    BackwardHead<Element, Units, Rows, Vectors>(head, room).run();
  else
    ForwardHead<Element, Units, Rows, Vectors>(head, room).run();
}

template <class Units, int Rows, int Vectors>
METAFORMER_INLINE void run_in_floats(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  if (head.bf16)
    run<std::uint16_t, Units, Rows, Vectors>(head, room, backward);
  else
    run<float, Units, Rows, Vectors>(head, room, backward);
}

// Blocks as large as the registers of each instruction set hold.
#ifdef __x86_64__
__attribute__((target("arch=x86-64-v4"))) void run_avx512_bf16(const HeadAttention& head, HeadWorkspace& room,
                                                               bool backward) {
  run<std::uint16_t, Bf16Pairs, 8, 2>(head, room, backward);
}
__attribute__((target("arch=x86-64-v4"))) void run_avx512(const HeadAttention& head, HeadWorkspace& room,
                                                          bool backward) {
  run_in_floats<Avx512Floats, 8, 2>(head, room, backward);
}
__attribute__((target("arch=x86-64-v3"))) void run_avx2(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  run_in_floats<Floats, 4, 1>(head, room, backward);
}
#endif
void run_plain(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  run_in_floats<Floats, 2, 1>(head, room, backward);
}

void run_as(VectorCode code, const HeadAttention& head, HeadWorkspace& room, bool backward) {
#ifdef __x86_64__
  if (code == VectorCode::avx512_bf16 && head.bf16) return run_avx512_bf16(head, room, backward);
  if (code >= VectorCode::avx512) return run_avx512(head, room, backward);
  if (code == VectorCode::avx2) return run_avx2(head, room, backward);
#endif
  run_plain(head, room, backward);
}

VectorCode find_widest() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v4"))
    return __builtin_cpu_supports("avx512bf16") ? VectorCode::avx512_bf16 : VectorCode::avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return VectorCode::avx2;
#endif
  return VectorCode::plain;
}

}  // namespace

VectorCode widest_vector_code() {
  static const auto widest = find_widest();
  return widest;
}

void attend_forward(const HeadAttention& head, HeadWorkspace& room, VectorCode code) {
  run_as(code, head, room, false);
}
void attend_backward(const HeadAttention& head, HeadWorkspace& room, VectorCode code) {
  run_as(code, head, room, true);
}

}  // namespace metaformer
