#include "attention/host_attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/vector_math.h"

namespace metaformer {

namespace {

constexpr std::int64_t tile = 32;   // queries
constexpr std::int64_t panel = 32;  // columns of a packed operand that lie together
constexpr float infinity = std::numeric_limits<float>::infinity();

std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

// Elements (row, column) of the left side of a product lie at row * row_step + column * column_step.
struct Left {
  const float* data;
  std::int64_t row_step, column_step;
};

// sum[Rows][16 Vectors] (+)= left right over `depth`; rows of `right` are `right_step` apart.
template <int Rows, int Vectors, bool Accumulate>
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
      const Lanes a = every_lane(left.data[r * left.row_step + l * left.column_step]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) total[r][v] += a * b[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store_lanes(sum + r * sum_step + v * lane_count, total[r][v]);
}

// `rows` a multiple of Rows, `columns` of 16.
template <int Rows, int Vectors, bool Accumulate>
METAFORMER_INLINE void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Left& left,
                                const float* right, std::int64_t right_step, float* sum, std::int64_t sum_step) {
  std::int64_t n = 0;
  for (; n + Vectors * lane_count <= columns; n += Vectors * lane_count)
    for (std::int64_t m = 0; m < rows; m += Rows)
      multiply_block<Rows, Vectors, Accumulate>({left.data + m * left.row_step, left.row_step, left.column_step},
                                                right + n, right_step, depth, sum + m * sum_step + n, sum_step);
  for (; n < columns; n += lane_count)
    for (std::int64_t m = 0; m < rows; m += Rows)
      multiply_block<Rows, 1, Accumulate>({left.data + m * left.row_step, left.row_step, left.column_step}, right + n,
                                          right_step, depth, sum + m * sum_step + n, sum_step);
}

// Rows as floats, `step` apart; zeros from `width` on and from row `count` up to `padded`.
template <class Element>
METAFORMER_INLINE void pack_rows(const HeadRows& from, std::int64_t first, std::int64_t count, std::int64_t padded,
                                 float* to, std::int64_t step) {
  for (std::int64_t r = 0; r < padded; ++r, to += step) {
    std::int64_t c = 0;
    if (r < count) {
      const auto* row = static_cast<const Element*>(from.data) + (first + r) * from.stride;
      for (; c + lane_count <= from.width; c += lane_count) store_lanes(to + c, load_lanes(row + c));
      Element rest[lane_count] = {};
      std::copy(row + c, row + from.width, rest);
      if (c < from.width) store_lanes(to + c, load_lanes(rest));
      c = round_up(from.width, lane_count);
    }
    for (; c < step; c += lane_count) store_lanes(to + c, Lanes{});
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

// The transpose of packed rows: panels of 32 tokens, in each `width` rows of 32.
METAFORMER_INLINE void transpose(const float* rows, std::int64_t step, std::int64_t tokens, std::int64_t width,
                                 float* panels) {
  for (std::int64_t token = 0; token < tokens; token += lane_count) {
    float* to = panels + token / panel * panel * width + token % panel;
    for (std::int64_t c = 0; c < width; c += lane_count) {
      Lanes block[lane_count];
#pragma GCC unroll 16
      for (int i = 0; i < lane_count; ++i) block[i] = load_lanes(rows + (token + i) * step + c);
      transpose_lanes(block);
#pragma GCC unroll 16
      for (int i = 0; i < lane_count; ++i) store_lanes(to + (c + i) * panel, block[i]);
    }
  }
}

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

// A head, its operands as packed floats.
template <class Element, int Rows, int Vectors>
struct Head {
  const HeadAttention& in;
  HeadWorkspace& room;
  std::int64_t tokens = round_up(in.tokens, panel), score_step = tokens + lane_count;
  std::int64_t key_width = round_up(in.q.width, lane_count), value_width = round_up(in.v.width, lane_count);
  float *keys = nullptr, *values = nullptr, *key_panels = nullptr, *value_panels = nullptr;
  float *queries = nullptr, *weights = nullptr;  // of a tile

  METAFORMER_INLINE void prepare(bool backward) {
    const auto per_token = 2 * (key_width + value_width) + 2 * (backward ? key_width + value_width : 0);
    const auto of_tile = 2 * tile * (score_step + key_width + value_width);
    room.begin(tokens * per_token + of_tile);
    keys = room.take(tokens * key_width);
    pack_rows<Element>(in.k, 0, in.tokens, tokens, keys, key_width);
    key_panels = room.take(tokens * key_width);
    transpose(keys, key_width, tokens, key_width, key_panels);
    values = in.shares_values() ? keys : room.take(tokens * value_width);
    if (!in.shares_values()) pack_rows<Element>(in.v, 0, in.tokens, tokens, values, value_width);
    if (backward) {
      value_panels = in.shares_values() ? key_panels : room.take(tokens * value_width);
      if (!in.shares_values()) transpose(values, value_width, tokens, value_width, value_panels);
    }
    queries = room.take(tile * key_width);
    weights = room.take(tile * score_step);
  }

  // Behind the last key, in whole panels, that the tile's queries may see.
  METAFORMER_INLINE std::int64_t end_of_keys(std::int64_t first) const {
    return in.causal ? std::min(tokens, round_up(first + tile, panel)) : tokens;
  }

  // product[i][j] = left_i . (row j of what `panels` is the transpose of), for j below `end`.
  METAFORMER_INLINE void multiply_panels(const float* left, std::int64_t width, const float* panels, std::int64_t end,
                                         float* product) const {
    for (std::int64_t j = 0; j < end; j += panel)
      multiply<Rows, Vectors, false>(tile, panel, width, {left, width, 1}, panels + j * width, panel, product + j,
                                     score_step);
  }

  // -infinity where query first + row does not see the key; keys from in.tokens on do not exist.
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
    pack_rows<Element>(in.q, first, count, tile, queries, key_width);
    multiply_panels(queries, key_width, key_panels, end, weights);
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

  // Scores become exponentials relative to the greatest, without those that dropout takes; returns the sum of all.
  METAFORMER_INLINE float exponentiate(float* score, std::int64_t query, std::int64_t end, float& greatest) const {
    Lanes most = every_lane(-infinity);
    for (std::int64_t j = 0; j < end; j += lane_count) {
      const Lanes s = load_lanes(score + j);
      most = s > most ? s : most;
    }
    greatest = greatest_of(most);
    Lanes total = {};
    const auto drawn = row_bits(query);
    const Lanes offset = every_lane(greatest == -infinity ? 0.0f : greatest * in.scale);
    for (std::int64_t j = 0; j < end; j += lane_count) {
      const Lanes e = exp_of(load_lanes(score + j) * in.scale - offset);
      total += e;
      store_lanes(score + j, in.dropout > 0 ? e * kept(drawn, j) : e);
    }
    return sum_of(total);
  }

  METAFORMER_INLINE void forward() {
    prepare(false);
    float* mixed = room.take(tile * value_width);
    for (std::int64_t first = 0; first < in.tokens; first += tile) {
      const auto end = end_of_keys(first), count = std::min(tile, in.tokens - first);
      score_tile(first, end);
      float inverse[tile] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        float greatest;
        const float total = exponentiate(weights + r * score_step, first + r, end, greatest);
        inverse[r] = total == 0 ? 0 : 1 / total;
        in.log_sum[first + r] = total == 0 ? infinity : greatest * in.scale + std::log(total);
      }
      multiply<Rows, Vectors, false>(tile, value_width, end, {weights, score_step, 1}, values, value_width, mixed,
                                     value_width);
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t c = 0; c < value_width; c += lane_count)
          store_lanes(mixed + r * value_width + c, load_lanes(mixed + r * value_width + c) * inverse[r]);
      unpack_rows<Element>(mixed, value_width, count, in.t, first);
    }
    zero_rows<Element>(in.t, in.tokens, in.padding);
    std::fill_n(in.log_sum + in.tokens, in.padding, infinity);
  }

  // dt_i . t_i of a tile's row
  METAFORMER_INLINE float delta_of(const float* dt, std::int64_t query) const {
    const auto* t = static_cast<const Element*>(in.t.data) + query * in.t.stride;
    Lanes total = {};
    std::int64_t c = 0;
    for (; c + lane_count <= in.t.width; c += lane_count) total += load_lanes(dt + c) * load_lanes(t + c);
    Element rest[lane_count] = {};
    std::copy(t + c, t + in.t.width, rest);
    if (c < in.t.width) total += load_lanes(dt + c) * load_lanes(rest);
    return sum_of(total);
  }

  // weights become P, `slopes` (dP) become scale P (dP - delta); with dropout m: m P, and scale P (m dP - delta).
  METAFORMER_INLINE void weigh(std::int64_t first, std::int64_t end, const float* dt, float* slopes) const {
    for (std::int64_t r = 0; r < tile; ++r) {
      const bool exists = first + r < in.tokens;
      const float log_sum = exists ? in.log_sum[first + r] : infinity;
      const float delta = exists ? delta_of(dt + r * value_width, first + r) : 0;
      float *weight = weights + r * score_step, *slope = slopes + r * score_step;
      if (!(log_sum < infinity) && log_sum == log_sum) {  // sees nothing, or is not there
        std::fill(weight, weight + end, 0.0f);
        std::fill(slope, slope + end, 0.0f);
        continue;
      }
      const auto drawn = row_bits(first + r);
      for (std::int64_t j = 0; j < end; j += lane_count) {
        const Lanes p = exp_of(load_lanes(weight + j) * in.scale - log_sum);
        const Lanes m = in.dropout > 0 ? kept(drawn, j) : every_lane(1);
        store_lanes(weight + j, m * p);
        store_lanes(slope + j, p * (m * load_lanes(slope + j) - delta) * in.scale);
      }
    }
  }

  METAFORMER_INLINE void backward() {
    prepare(true);
    float* dt = room.take(tile * value_width);
    float* slopes = room.take(tile * score_step);
    float* dq = room.take(tile * key_width);
    float* dk = room.take(tokens * key_width);
    float* dv = in.shares_values() ? dk : room.take(tokens * value_width);
    std::fill(dk, dk + tokens * key_width, 0.0f);
    std::fill(dv, dv + tokens * value_width, 0.0f);
    for (std::int64_t first = 0; first < in.tokens; first += tile) {
      const auto end = end_of_keys(first), count = std::min(tile, in.tokens - first);
      score_tile(first, end);
      pack_rows<Element>(in.dt, first, count, tile, dt, value_width);
      multiply_panels(dt, value_width, value_panels, end, slopes);
      weigh(first, end, dt, slopes);
      multiply<Rows, Vectors, false>(tile, key_width, end, {slopes, score_step, 1}, keys, key_width, dq, key_width);
      unpack_rows<Element>(dq, key_width, count, in.dq, first);
      multiply<Rows, Vectors, true>(end, key_width, tile, {slopes, 1, score_step}, queries, key_width, dk, key_width);
      multiply<Rows, Vectors, true>(end, value_width, tile, {weights, 1, score_step}, dt, value_width, dv, value_width);
    }
    unpack_rows<Element>(dk, key_width, in.tokens, in.dk, 0);
    if (!in.shares_values()) unpack_rows<Element>(dv, value_width, in.tokens, in.dv, 0);
    zero_rows<Element>(in.dq, in.tokens, in.padding);
    zero_rows<Element>(in.dk, in.tokens, in.padding);
    if (!in.shares_values()) zero_rows<Element>(in.dv, in.tokens, in.padding);
  }
};

template <int Rows, int Vectors>
METAFORMER_INLINE void run(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  if (head.bf16) {
    Head<std::uint16_t, Rows, Vectors> work{head, room};
    backward ? work.backward() : work.forward();
  } else {
    Head<float, Rows, Vectors> work{head, room};
    backward ? work.backward() : work.forward();
  }
}

// Blocks as large as the registers of each instruction set hold.
#ifdef __x86_64__
__attribute__((target("arch=x86-64-v4"))) void run_avx512(const HeadAttention& head, HeadWorkspace& room,
                                                          bool backward) {
  run<8, 2>(head, room, backward);
}
__attribute__((target("arch=x86-64-v3"))) void run_avx2(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  run<4, 1>(head, room, backward);
}
#endif
void run_plain(const HeadAttention& head, HeadWorkspace& room, bool backward) { run<2, 1>(head, room, backward); }

void run_as(VectorCode code, const HeadAttention& head, HeadWorkspace& room, bool backward) {
#ifdef __x86_64__
  if (code == VectorCode::avx512) return run_avx512(head, room, backward);
  if (code == VectorCode::avx2) return run_avx2(head, room, backward);
#endif
  run_plain(head, room, backward);
}

VectorCode find_widest() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v4")) return VectorCode::avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return VectorCode::avx2;
#endif
  return VectorCode::plain;
}

}  // namespace

void HeadWorkspace::begin(std::int64_t count) {
  constexpr std::int64_t cache_line = 16, pieces = 16;
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
