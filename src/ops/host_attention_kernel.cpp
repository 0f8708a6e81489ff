#include "ops/host_attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/vector_math.h"
#include "ops/host_attention_products.h"

namespace metaformer {

using namespace host_attention_products;

namespace {

constexpr std::int64_t tile = 32;  // queries
constexpr float infinity = std::numeric_limits<float>::infinity();

METAFORMER_INLINE float sum_of(Lanes x) {
  float total = 0;
  for (int i = 0; i < lane_count; ++i) total += x[i];
  return total;
}

METAFORMER_INLINE float greatest_of(Lanes x) {
  float greatest = x[0];
  for (int i = 1; i < lane_count; ++i) greatest = x[i] > greatest ? x[i] : greatest;
  return greatest;
}

// A head, its operands packed in Units.
template <class Element, class Units, int Rows, int Vectors>
struct Head {
  static constexpr bool pairs = Units::unit == 2;
  using Packed = std::conditional_t<pairs, std::uint16_t, float>;

  const HeadAttention& in;
  HeadWorkspace& room;
  std::int64_t tokens = round_up(in.tokens, panel), score_step = tokens + lane_count;
  std::int64_t key_width = round_up(in.q.width, lane_count* Units::unit);
  std::int64_t value_width = round_up(in.v.width, lane_count* Units::unit);
  std::int64_t key_units = key_width / Units::unit, value_units = value_width / Units::unit;
  // Right sides of products, of all tokens: panels where the depth is the width, the others where it is the tokens.
  const float *keys = nullptr, *values = nullptr, *key_panels = nullptr, *value_panels = nullptr;
  // Of a tile: rows of units, scores in float32 and, of pairs, as rows of units.
  float *queries = nullptr, *weights = nullptr, *weight_rows = nullptr;

  METAFORMER_INLINE void prepare(bool backward) {
    // Rows, their transpose, gradients; of a tile rows, pairs of them and all forms of scores.
    const auto per_token = (backward ? 3 : 2) * (key_width + value_width);
    room.begin(tokens * per_token + tile * (4 * score_step + 2 * (key_width + value_width)));
    const float* key_rows = packed_rows(in.k, key_units);
    key_panels = transposed(key_rows, key_units);
    if (backward || in.shares_values()) keys = along_rows(key_rows, tokens, key_width);
    queries = room.take(tile * key_units);
    weights = room.take(tile * score_step);
    if (pairs) weight_rows = room.take(tile * score_step / 2);
    if (in.shares_values()) {
      values = keys, value_panels = key_panels;
      return;
    }
    const float* value_rows = packed_rows(in.v, value_units);
    if (backward)
      value_panels = transposed(value_rows, value_units);
    else
      values = along_rows(value_rows, tokens, value_width);
  }

  METAFORMER_INLINE const float* packed_rows(const HeadRows& from, std::int64_t units) const {
    float* rows = room.take(tokens * units);
    pack_rows<Packed, Element>(from, 0, in.tokens, tokens, rows, units);
    return rows;
  }
  METAFORMER_INLINE const float* transposed(const float* rows, std::int64_t units) const {
    float* panels = room.take(tokens * units);
    transpose(rows, tokens, units, panels);
    return panels;
  }

  // Packed rows as the right side of a product whose depth they are.
  METAFORMER_INLINE const float* along_rows(const float* rows, std::int64_t count, std::int64_t width) const {
    if constexpr (!pairs) return rows;
    float* units = room.take(count / 2 * width);
    pair_rows(rows, count, width, units);
    return units;
  }

  // Behind the last key, in whole panels, that the tile's queries may see.
  METAFORMER_INLINE std::int64_t end_of_keys(std::int64_t first) const {
    return in.causal ? std::min(tokens, round_up(first + tile, panel)) : tokens;
  }

  // product[i][j] = left_i . (row j of what `panels` is the transpose of), for j below `end`.
  METAFORMER_INLINE void multiply_panels(const float* left, std::int64_t units, const float* panels, std::int64_t end,
                                         float* product) const {
    for (std::int64_t j = 0; j < end; j += panel)
      multiply<Units, Rows, Vectors, false>(tile, panel, units, {left, units, 1}, panels + j * units, panel,
                                            product + j, score_step);
  }

  // Of a query's scores those of keys that it does not see become -infinity; keys from in.tokens on do not exist.
  METAFORMER_INLINE void mask(float* score, std::int64_t query, std::int64_t end) const {
    const auto visible = in.causal ? std::min(query + 1, in.tokens) : in.tokens;
    std::fill(score + std::min(visible, end), score + end, -infinity);
    if (in.segment == nullptr) return;
    const auto own = in.segment[query];
    for (std::int64_t j = 0; j < visible; ++j)
      if (in.segment[j] != own || own == -1) score[j] = -infinity;
  }

  METAFORMER_INLINE void score_tile(std::int64_t first, std::int64_t end) const {
    const auto count = std::min(tile, in.tokens - first);
    pack_rows<Packed, Element>(in.q, first, count, tile, queries, key_units);
    multiply_panels(queries, key_units, key_panels, end, weights);
    for (std::int64_t r = 0; r < count; ++r) mask(weights + r * score_step, first + r, end);
  }

  // What dropout multiplies the weights of 16 keys with.
  METAFORMER_INLINE Lanes kept(std::uint32_t row_bits, std::int64_t key) const {
    constexpr UnsignedLanes lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const float keep = 1 - in.dropout;
    const auto bits = scrambled(lane + static_cast<std::uint32_t>(key) + row_bits);
    const auto limit = static_cast<std::uint32_t>(static_cast<double>(keep) * 4294967295.0);
    return bits <= limit ? every_lane(1 / keep) : Lanes{};
  }
  METAFORMER_INLINE std::uint32_t row_bits(std::int64_t query) const {
    return scrambled(static_cast<std::uint32_t>(query) + scrambled(in.seed));
  }

  // Of a tile's row.
  METAFORMER_INLINE void store_weights(std::int64_t row, std::int64_t key, Lanes weight) const {
    if constexpr (pairs)
      store_shorts(reinterpret_cast<std::uint16_t*>(weight_rows) + row * score_step + key, Units::rounded(weight));
    else
      store_lanes(weights + row * score_step + key, weight);
  }

  // Scores become exponentials relative to the greatest, without those that dropout takes; returns the sum of all.
  METAFORMER_INLINE float exponentiate(std::int64_t row, std::int64_t query, std::int64_t end, float& greatest) const {
    const float* score = weights + row * score_step;
    Lanes most = every_lane(-infinity);
    for (std::int64_t j = 0; j < end; j += lane_count) {
      const Lanes s = load_lanes(score + j);
      most = s > most ? s : most;
    }
    greatest = greatest_of(most);
    Lanes total = {};
    const auto drawn = row_bits(query);
    const float scale = in.scale;  // what is read from `in` within the loop is read anew after every store
    const bool drops = in.dropout > 0;
    const Lanes offset = every_lane(greatest == -infinity ? 0.0f : greatest * in.scale);
    for (std::int64_t j = 0; j < end; j += lane_count) {
      const Lanes e = exp_of(load_lanes(score + j) * scale - offset);
      total += e;
      store_weights(row, j, drops ? e * kept(drawn, j) : e);
    }
    return sum_of(total);
  }

  METAFORMER_INLINE void forward() {
    prepare(false);
    float* mixed = room.take(tile * value_width);
    const Left left = {pairs ? weight_rows : weights, score_step / Units::unit, 1};
    for (std::int64_t first = 0; first < in.tokens; first += tile) {
      const auto end = end_of_keys(first), count = std::min(tile, in.tokens - first);
      score_tile(first, end);
      float inverse[tile] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        float greatest;
        const float total = exponentiate(r, first + r, end, greatest);
        inverse[r] = total == 0 ? 0 : 1 / total;
        in.log_sum[first + r] = total == 0 ? infinity : greatest * in.scale + std::log(total);
      }
      multiply<Units, Rows, Vectors, false>(tile, value_width, end / Units::unit, left, values, value_width, mixed,
                                            value_width);
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t c = 0; c < value_width; c += lane_count)
          store_lanes(mixed + r * value_width + c, load_lanes(mixed + r * value_width + c) * inverse[r]);
      unpack_rows<Element>(mixed, value_width, count, in.t, first);
    }
    zero_rows<Element>(in.t, in.tokens, in.padding);
    std::fill_n(in.log_sum + in.tokens, in.padding, infinity);
  }

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
      const auto drawn = row_bits(first + r);
      for (std::int64_t j = 0; j < end; j += lane_count) {
        const Lanes p = exp_of(load_lanes(weight + j) * scale - log_sum);
        const Lanes m = drops ? kept(drawn, j) : every_lane(1);
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

  METAFORMER_INLINE void backward() {
    prepare(true);
    float* dt = room.take(tile * value_units);
    float* slopes = room.take(tile * score_step);
    float* dq = room.take(tile * key_width);
    float* dk = room.take(tokens * key_width);
    float* dv = in.shares_values() ? dk : room.take(tokens * value_width);
    std::fill(dk, dk + tokens * key_width, 0.0f);
    std::fill(dv, dv + tokens * value_width, 0.0f);
    const auto of_tile = room.mark();
    for (std::int64_t first = 0; first < in.tokens; first += tile, room.rewind(of_tile)) {
      const auto end = end_of_keys(first), count = std::min(tile, in.tokens - first);
      score_tile(first, end);
      pack_rows<Packed, Element>(in.dt, first, count, tile, dt, value_units);
      multiply_panels(dt, value_units, value_panels, end, slopes);
      weigh(first, end, slopes);
      const auto left = sides_of(end, slopes);
      const auto* of_queries = along_rows(queries, tile, key_width);
      const auto* of_dt = along_rows(dt, tile, value_width);
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

template <class Element, class Units, int Rows, int Vectors>
METAFORMER_INLINE void run(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  Head<Element, Units, Rows, Vectors> work{head, room};
  backward ? work.backward() : work.forward();
}

template <int Rows, int Vectors>
METAFORMER_INLINE void run_in_floats(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  if (head.bf16)
    run<std::uint16_t, Floats, Rows, Vectors>(head, room, backward);
  else
    run<float, Floats, Rows, Vectors>(head, room, backward);
}

// Blocks as large as the registers of each instruction set hold.
#ifdef __x86_64__
__attribute__((target("arch=x86-64-v4"))) void run_avx512_bf16(const HeadAttention& head, HeadWorkspace& room,
                                                               bool backward) {
  run<std::uint16_t, Bf16Pairs, 8, 2>(head, room, backward);
}
__attribute__((target("arch=x86-64-v4"))) void run_avx512(const HeadAttention& head, HeadWorkspace& room,
                                                          bool backward) {
  run_in_floats<8, 2>(head, room, backward);
}
__attribute__((target("arch=x86-64-v3"))) void run_avx2(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  run_in_floats<4, 1>(head, room, backward);
}
#endif
void run_plain(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  run_in_floats<2, 1>(head, room, backward);
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

void HeadWorkspace::begin(std::int64_t count) {
  constexpr std::int64_t cache_line = 16, pieces = 24;
  const auto needed = static_cast<std::size_t>(count + (pieces + 1) * cache_line);
  if (memory_.size() < needed) memory_.resize(needed);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  next_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float);
}

float* HeadWorkspace::take(std::int64_t count) {
  float* piece = next_;
  next_ += round_up(count, 16);
  return piece;
}

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
