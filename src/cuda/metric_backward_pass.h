#pragma once
// Backward of metric attention.

#include <cmath>
#include <type_traits>

#include "cuda/metric_tiles.h"

// Backward, with every sum in a fixed order:
//
//   delta_i = dt_i . t_i,  dS = P (m dt p^T - delta)          P = exp2(scores - log2_sum), m: dropout, drawn again
//   dq = scale a dS p  [distance: - (rho + c) p]              a = 1, or 2 for a distance
//   dp = dq M^T + (m P)^T dt + scale a dS^T q  [distance: - (rho + c) q]
//
// with rho_i = scale sum_j dS_ij and c_j = scale sum_i dS_ij, the diagonal of dS being 0 for a distance (a point's
// distance to itself is 0). rho is 0 but for rounding; without it the gradient of M drowns in low precision.
//
// Where values are given, dS = P (m dt v^T - delta), and (m P)^T dt is dv in place of a part of dp.
//
// Where keys are other tokens y, dq and the first part of dp are of the queries, without c. The rest of dp is of the
// keys, which for a distance have a dq, too: dq = - c y, dy = (m P)^T dt + scale a dS^T q - 2 c y M. The gradient of M
// is p^T dq over all tokens.
//
// One kernel goes over all pairs once; small ones prepare and finish it.

namespace metaformer::cuda {

// The counter of the blocks that have begun, and those of the turns at a head's tile of queries, one for each warp.
GPU_DEVICE unsigned* begun_blocks(const MetricBackward& backward) { return backward.turns; }
GPU_DEVICE unsigned* turns_at(const MetricBackward& backward, const Place& place, std::int64_t tile) {
  const auto& in = backward.in;
  const auto tiles = tile_count(in.queries.tokens, turn_rows);
  return backward.turns + 1 + turn_warps * ((place.batch * in.heads + place.head) * tiles + tile);
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
  GPU_DEVICE NoDropout(const MetricInputs&, const Place&, std::int64_t, std::int64_t) {}
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

  // m P and, in place of dt p^T, dS. Distances: whether the scores may be some.
  template <bool Distances = true>
  GPU_DEVICE void weigh(float& product, float& gradient_of_weight, bool visible, bool diagonal, float half_bias,
                        float log2_sum, float delta, float m) const {
    const float score = Distances && in.distance ? product + half_bias : product;
    const float weight = visible ? gpu::exp2_approximate(gpu::fused_multiply_add(score, exponent, -log2_sum)) : 0.0f;
    gradient_of_weight = Distances && in.distance && diagonal ? 0.0f : weight * (m * gradient_of_weight - delta);
    product = m * weight;
  }
};

// What comes before and after the pass over all pairs: delta of every query, and from the sums dp and dq.

// Of kernels with four lanes a token.
struct PerTokenShape {
  static constexpr int threads = 128, rows = threads / 4;
};

// delta; no block of the pass has begun, and none has had its turn.
template <class Format>
GPU_KERNEL(PerTokenShape::threads)
metric_delta_kernel(const MetricBackward backward) {
  const auto& in = backward.in;
  const auto place = first_tile_first(in, PerTokenShape::rows);
  const auto token = place.first + gpu::thread_index() / 4;
  const bool exists = gpu::within(token < in.queries.tokens);
  float sum = 0;
  for (int c = 2 * (lane_index() % 4); exists && c < in.width; c += 8) {
    const auto* t = tokens_at<Format>(backward.t, backward.t_strides, place, token) + c;
    const auto* dt = tokens_at<Format>(backward.dt, backward.dt_strides, place, token) + c;
    sum += Format::to_float(t[0]) * Format::to_float(dt[0]) + Format::to_float(t[1]) * Format::to_float(dt[1]);
  }
  sum = sum_of_row(sum);
  if (!exists || lane_index() % 4 != 0) return;
  backward.delta[place.row(in, in.queries, token)] = sum;
  if (place.row(in, in.queries, token) == 0) *begun_blocks(backward) = 0;
  if (token % turn_rows != 0) return;
  for (int warp = 0; warp < turn_warps; ++warp) turns_at(backward, place, token / turn_rows)[warp] = 0;
}

// Of a distance, dp and dq of keys that are other tokens than the queries.
template <class Format>
GPU_KERNEL(PerTokenShape::threads)
metric_keys_kernel(const MetricBackward backward) {
  using Element = typename Format::Element;
  const auto& in = backward.in;
  const auto& keys = backward.keys;
  const auto place = first_tile_first(in, PerTokenShape::rows);
  const auto token = place.first + gpu::thread_index() / 4;
  if (!gpu::within(token < in.keys.tokens)) return;
  const auto at = place.offset(contiguous_strides(in, in.keys), token);
  const auto* p = tokens_at<Format>(in.keys.p, in.keys.p_strides, place, token);
  const float c = backward.column_sum[place.row(in, in.keys, token)];
  for (int i = lane_index() % 4; i < in.width; i += 4) {
    const float q = Format::to_float(tokens_at<Format>(keys.q, keys.q_strides, place, token)[i]);
    auto& dp = static_cast<Element*>(keys.dp)[place.offset(keys.dp_strides, token) + i];
    dp = Format::from_float(backward.dkey[at + i] - 2 * c * q);
    if (keys.dq != nullptr) static_cast<Element*>(keys.dq)[at + i] = Format::from_float(-c * Format::to_float(p[i]));
  }
}

template <class Format, int Width>
struct FinishShape {
  static constexpr int warps = 4, threads = warps * gpu::warp_size;
  static constexpr int rows = 16 * warps;
  static constexpr int ld = padded_row<Format, Width>;
  // In shared memory: a part of the metric, and split factors, which take too many registers.
  static constexpr int form_rows = metric_rows<Format, Width>, factor_rows = is_split<Format> ? rows : 0;
  static constexpr int shared_bytes =
      (form_rows + factor_rows) * ld * static_cast<int>(sizeof(typename Format::Element));
  static_assert(shared_bytes <= most_shared_bytes);
};

// dq and dp of 64 tokens as queries, and as keys where they are.
template <class Format, int Width>
class BackwardFinish {
 public:
  using Shape = FinishShape<Format, Width>;
  using Element = typename Format::Element;
  static constexpr int kept_steps = is_split<Format> ? 1 : Width / Format::depth;

  GPU_DEVICE BackwardFinish(const MetricBackward& backward, unsigned char* memory)
      : backward_(backward),
        in_(backward.in),
        place_(first_tile_first(in_, Shape::rows)),
        metric_{reinterpret_cast<Element*>(memory)},
        factors_{metric_.at(Shape::form_rows, 0)},
        row_(16 * warp_index()) {}

  // Of a distance, c p M^T is left out of dq M^T: as c q it takes no further rounding.
  GPU_DEVICE void run() {
    Sum dq[Width / 8];
    read_dq(dq);
    float rho[2] = {0, 0}, c[2] = {0, 0};
    if (in_.distance) {
      read_per_row(rho, backward_.row_sum);
      if (in_.to_themselves) read_per_row(c, backward_.column_sum);
      subtract(dq, rho, in_.queries.p, in_.queries.p_strides, 0);
    }
    const float both[2] = {rho[0] + 2 * c[0], rho[1] + 2 * c[1]};
    if (in_.form == MetricForm::dense) {
      Left left[1][kept_steps];
      if constexpr (is_split<Format>) {
        for_each_pair(dq, [&](int row, int column, const float* values) {
          store_pair<Format>(factors_.at(row_ + row, column), values[0], values[1]);
        });
      } else {
        to_left<Format>(left[0], dq);
      }
      store_dq(dq, c);
      multiply_by_metric(left, both);
      return;
    }
    Sum dp[Width / 8];
    GPU_UNROLL
    for (int n = 0; n < Width / 8; ++n) dp[n] = dq[n];
    store_dq(dq, c);
    start_load_metric<Width, Shape::threads>(metric_, in_, place_.head, 0);
    finish_loads();
    if (in_.form == MetricForm::diagonal) scale_columns(dp, metric_);
    finish(dp, both, 0);
  }

 private:
  GPU_DEVICE void store_dq(Sum (&dq)[Width / 8], const float (&c)[2]) const {
    if (backward_.queries.dq == nullptr) return;
    if (in_.distance && in_.to_themselves) subtract(dq, c, in_.queries.p, in_.queries.p_strides, 0);
    store<Format>(dq, static_cast<Element*>(backward_.queries.dq), contiguous_strides(in_, in_.queries), in_,
                  in_.queries, place_, place_.first + row_);
  }

  // A part of the metric's rows gives as many columns of dp.
  GPU_DEVICE void multiply_by_metric(const Left (&dq)[1][kept_steps], const float (&both)[2]) const {
    constexpr int part = metric_rows<Format, Width>;
    GPU_UNROLL
    for (int first = 0; first < Width; first += part) {
      if (first > 0) gpu::sync_threads();  // the part before has been read
      start_load_metric<Width, Shape::threads>(metric_, in_, place_.head, first);
      finish_loads();
      Sum columns[1][part / 8];
      clear(columns[0]);
      if constexpr (is_split<Format>) {
        multiply_transposed(columns, factors_, row_, Width, metric_, 0);
      } else {
        multiply_transposed(columns, dq, metric_, 0);
      }
      finish(columns[0], both, first);
    }
  }

  // Columns of dp from `first` on.
  template <int Count>
  GPU_DEVICE void finish(Sum (&dp)[Count], const float (&both)[2], int first) const {
    const auto& queries = backward_.queries;
    if (in_.to_themselves) {
      Sum dkey[Count];
      read(dkey, backward_.dkey, first);
      GPU_UNROLL
      for (int n = 0; n < Count; ++n) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) dp[n].r[e] += dkey[n].r[e];
      }
    }
    if (in_.distance) subtract(dp, both, queries.q, queries.q_strides, first);
    store<Format>(dp, static_cast<Element*>(queries.dp), queries.dp_strides, in_, in_.queries, place_,
                  place_.first + row_, first);
  }

  GPU_DEVICE void read_dq(Sum (&dq)[Width / 8]) const {
    const auto query = place_.first + row_;
    const bool exists = gpu::within(query < in_.queries.tokens);
    const float* at = dq_sum_at<Width>(backward_, place_, query);
    clear(dq);
    GPU_UNROLL
    for (int n = 0; exists && n < Width / 8; ++n) {
      gpu::load_handed_on(dq[n].r, at + n * dq_sum_step);
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) dq[n].r[e] *= score_gradient(in_);
    }
  }

  // Columns from `first` on.
  template <int Count>
  GPU_DEVICE void read(Sum (&sum)[Count], const float* from, int first) const {
    for_each_pair(sum, [&](int row, int column, float* values) {
      const auto token = place_.first + row_ + row;
      column += first;
      const bool exists = gpu::within(token < in_.queries.tokens) && gpu::within(column < in_.width);
      const auto* at = from + place_.offset(contiguous_strides(in_, in_.queries), token) + column;
      values[0] = exists ? at[0] : 0.0f;
      values[1] = exists ? at[1] : 0.0f;
    });
  }

  GPU_DEVICE void read_per_row(float (&values)[2], const float* from) const {
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto token = place_.first + row_ + lane_index() / 4 + 8 * h;
      if (gpu::within(token < in_.queries.tokens)) values[h] = from[place_.row(in_, in_.queries, token)];
    }
  }

  // sum -= factor x, row by row, for columns of x from `first` on.
  template <int Count>
  GPU_DEVICE void subtract(Sum (&sum)[Count], const float (&factor)[2], const void* x, const MetricStrides& strides,
                           int first) const {
    for_each_pair(sum, [&](int row, int column, float* values) {
      const auto token = place_.first + row_ + row;
      column += first;
      if (!gpu::within(token < in_.queries.tokens) || !gpu::within(column < in_.width)) return;
      const auto* at = tokens_at<Format>(x, strides, place_, token) + column;
      values[0] -= factor[row / 8] * Format::to_float(at[0]);
      values[1] -= factor[row / 8] * Format::to_float(at[1]);
    });
  }

  const MetricBackward& backward_;
  const MetricInputs& in_;
  Place place_;
  Tile<Format, Shape::ld> metric_, factors_;
  int row_;  // of this warp's 16
};

template <class Format, int Width>
GPU_KERNEL((FinishShape<Format, Width>::threads))
metric_finish_kernel(const MetricBackward backward) {
  GPU_SHARED_MEMORY(memory);
  BackwardFinish<Format, Width>(backward, memory).run();
}

// dM = p^T dq over batch and tokens: every block sums its share of the tokens, then the shares are added in order.

template <class Format, int Width>
struct GradientShape {
  using Element = typename Format::Element;
  static constexpr int warps = 4, threads = warps * gpu::warp_size;
  static constexpr int rows = gradient_tile_rows;
  static constexpr int blocks = (Width / 16 + warps - 1) / warps;  // of 16 rows of M, per warp
  static constexpr int ld = padded_row<Format, Width>;
  static constexpr int shared_bytes = 2 * rows * ld * static_cast<int>(sizeof(Element));
};

// Whether keys have a dq of their own.
GPU_ANYWHERE bool keys_add_to_metric(const MetricInputs& in) { return in.distance && !in.to_themselves; }

// Block x: head x % heads, part x / heads.
template <class Format, int Width>
GPU_KERNEL((GradientShape<Format, Width>::threads))
metric_gradient_kernel(const MetricBackward backward, const std::int64_t parts) {
  using Shape = GradientShape<Format, Width>;
  using Element = typename Format::Element;
  GPU_SHARED_MEMORY(memory);
  const auto& in = backward.in;
  const auto head = gpu::block_index() % in.heads, part = gpu::block_index() / in.heads;
  const Tile<Format, Shape::ld> p{reinterpret_cast<Element*>(memory)}, dq{p.at(Shape::rows, 0)};
  const auto query_tiles = tile_count(in.queries.tokens, Shape::rows);
  const auto tiles = query_tiles + (keys_add_to_metric(in) ? tile_count(in.keys.tokens, Shape::rows) : 0);
  Sum sum[Shape::blocks][1][Width / 8];
  for (auto& block : sum) clear(block[0]);
  for (auto tile = part; tile < in.batch * tiles; tile += parts) {
    const auto of_sequence = tile % tiles;
    const bool of_keys = of_sequence >= query_tiles;
    const Place place{tile / tiles, head, (of_keys ? of_sequence - query_tiles : of_sequence) * Shape::rows};
    const auto& side = of_keys ? in.keys : in.queries;
    const auto* dqs = of_keys ? backward.keys.dq : backward.queries.dq;
    start_load_p<Width, Shape::threads>(p, Shape::rows, in, side, place, place.first);
    start_load_tokens<Width, Shape::threads>(dq, Shape::rows, dqs, contiguous_strides(in, side), side.tokens, in.width,
                                             place, place.first);
    finish_loads();
    GPU_UNROLL
    for (int k = 0; k < Shape::rows; k += Format::depth) {
      GPU_UNROLL
      for (int block = 0; block < Shape::blocks; ++block) {
        const int row = 16 * (warp_index() + block * Shape::warps);
        if (row >= Width) continue;  // the same for a whole warp
        Left left[1][1];
        load_transposed(left[0][0], p, k, row);
        multiply(sum[block], left, dq, k);
      }
    }
    gpu::sync_threads();  // before the next tiles come
  }
  for (int block = 0; block < Shape::blocks; ++block) {
    const int first = 16 * (warp_index() + block * Shape::warps);
    if (first >= Width) continue;
    for_each_pair(sum[block][0], [&](int row, int column, const float* values) {
      if (!gpu::within(first + row < in.width) || !gpu::within(column < in.width)) return;
      auto* target = backward.partial + ((part * in.heads + head) * in.width + first + row) * in.width + column;
      target[0] = values[0];
      target[1] = values[1];
    });
  }
}

// One thread per entry of dM.
template <int Threads>
GPU_KERNEL(Threads)
metric_sum_kernel(const MetricBackward backward, const std::int64_t parts) {
  const auto size = backward.in.heads * backward.in.width * backward.in.width;
  const auto at = gpu::block_index() * Threads + gpu::thread_index();
  if (!gpu::within(at < size)) return;
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += backward.partial[part * size + at];
  backward.dmetric[at] = sum;
}

// All pairs of queries and keys, once: a block owns a tile of keys and goes over the tiles of queries, the last one
// first. What its tokens contribute to dp as keys and values stays in registers. What it contributes to dq of a tile of
// queries is added in global memory, by the blocks in the order of their keys. Each warp adds its part of the tile, and
// waits for its turn: for the same warp of the block before. From last to first, blocks of a causal mask begin at the
// same tile and then follow one another; from first to last each would begin where the block before has yet to come.
// Weights and their gradients pass through shared memory at most.

template <class Format, int Width, bool HasValues>
struct PassShape {
  using Element = typename Format::Element;
  static constexpr int warps = turn_warps, threads = warps * gpu::warp_size;
  static constexpr int rows = 16 * warps;  // keys that a block owns
  static constexpr bool narrow = sizeof(Element) == 2;
  // Queries of a tile: as many as registers allow, those of split operands the fewest. Gradients of values take as many
  // registers as those of keys.
  static constexpr int sums = HasValues ? 2 * Width : Width;
  static constexpr bool wide = !narrow && (sums > 96 || (is_split<Format> && sums > 32));
  static constexpr int queries = narrow && sums <= 64 ? 64 : wide ? 16 : 32;
  // Whether the keys stay in registers as operands, too.
  static constexpr bool keeps_rows = narrow ? sums <= 128 : Width <= (is_split<Format> ? 16 : 48);
  // Whether registers are scarcer than elsewhere: the numbers of blocks then have 32 bits, and the end of the pass
  // takes its first key from that of the lane.
  static constexpr bool saves_registers = is_split<Format> && HasValues && Width == 64;
  using Number = std::conditional_t<saves_registers, unsigned, std::int64_t>;  // of a block, below 2^31

  // In shared memory: the keys and their values, two tiles of q, two of dt, and dS^T of a tile.
  static constexpr int ld = padded_row<Format, Width>, slope_ld = padded_row<Format, queries>;
  static constexpr int key_rows = HasValues ? 2 * rows : rows;
  static constexpr int tile_bytes = (key_rows + 4 * queries) * ld * static_cast<int>(sizeof(Element));
  static constexpr int slope_bytes = rows * slope_ld * static_cast<int>(sizeof(Element));
  static constexpr int shared_bytes = tile_bytes + slope_bytes + 2 * queries * 12;  // segments, log2 sums, deltas
  static_assert(shared_bytes <= most_shared_bytes);

  // A warp computes 16 rows of a tile's dq, and so many of its columns.
  static constexpr int row_groups = queries / 16, column_groups = warps / row_groups;
  static constexpr int columns = (Width / 16 + column_groups - 1) / column_groups * 16;
};

template <class Format, int Width, bool HasValues>
class BackwardPass {
 public:
  using Shape = PassShape<Format, Width, HasValues>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  using Slopes = Tile<Format, Shape::slope_ld>;
  static constexpr int kept_steps = Shape::keeps_rows ? Width / Format::depth : 1;

  // `number`: of the block, in the order in which blocks begin.
  GPU_DEVICE BackwardPass(const MetricBackward& backward, unsigned char* memory, typename Shape::Number number)
      : backward_(backward),
        in_(backward.in),
        rule_(in_),
        place_(first_tile_first(in_, Shape::rows, number)),
        keys_{reinterpret_cast<Element*>(memory)},
        values_{keys_.at(Shape::key_rows - Shape::rows, 0)},
        queries_{keys_.at(Shape::key_rows, 0)},
        slopes_{reinterpret_cast<Element*>(memory + Shape::tile_bytes)},
        segment_(reinterpret_cast<std::int32_t*>(memory + Shape::tile_bytes + Shape::slope_bytes)),
        log2_sum_(reinterpret_cast<float*>(segment_ + 2 * Shape::queries)),
        delta_(log2_sum_ + 2 * Shape::queries),
        row_(16 * warp_index()),
        key_(place_.first + row_ + lane_index() / 4) {}

  GPU_DEVICE void run() {
    start_load_p<Width, Shape::threads>(keys_, Shape::rows, in_, in_.keys, place_, place_.first);
    if constexpr (HasValues)
      start_load_tokens<Width, Shape::threads>(values_, Shape::rows, in_.values, in_.value_strides, in_.keys.tokens,
                                               in_.width, place_, place_.first);
    finish_loads();
    Left p[1][kept_steps];
    if constexpr (Shape::keeps_rows) load(p[0], keys_, row_);
    Sum dkey[1][Width / 8], dvalue[1][HasValues ? Width / 8 : 1];
    clear(dkey[0]);
    clear(dvalue[0]);
    float column_sum[2] = {0, 0};
    const std::int64_t first = first_query(), last = (in_.queries.tokens - 1) / Shape::queries * Shape::queries;
    start_queries(last);
    for (auto query = last; query >= first; query -= Shape::queries) {
      finish_loads();
      if (query > first) start_queries(query - Shape::queries);
      add_queries(query, p, column_sum, dkey, dvalue);
      add_to_dq(query);
    }
    finish(dkey[0], dvalue[0], column_sum);
  }

 private:
  // Of the first tile that sees these keys. The block of the first keys goes over all: its part of dq is the first.
  GPU_DEVICE std::int64_t first_query() const {
    const auto seen_from = place_.first - first_position(in_);
    return in_.causal && turn() > 0 && seen_from > 0 ? seen_from / Shape::queries * Shape::queries : 0;
  }

  GPU_DEVICE void start_queries(std::int64_t query) {
    const int first = buffer_row<Shape::queries>(query);
    const auto& side = in_.queries;
    start_load_tokens<Width, Shape::threads>(Tokens{queries_.at(first, 0)}, Shape::queries, backward_.queries.q,
                                             backward_.queries.q_strides, side.tokens, in_.width, place_, query);
    start_load_tokens<Width, Shape::threads>(Tokens{queries_.at(2 * Shape::queries + first, 0)}, Shape::queries,
                                             backward_.dt, backward_.dt_strides, side.tokens, in_.width, place_, query);
    for (int i = gpu::thread_index(); i < Shape::queries; i += Shape::threads) {
      const bool exists = gpu::within(query + i < side.tokens);
      const auto row = place_.row(in_, side, query + i);
      segment_[first + i] = segment_of(side, place_.batch, query + i);
      log2_sum_[first + i] = exists ? backward_.log2_sum[row] : INFINITY;
      delta_[first + i] = exists ? backward_.delta[row] : 0.0f;
    }
  }

  // Adds to dkey and dvalue, and leaves dS^T in shared memory.
  GPU_DEVICE void add_queries(std::int64_t query, const Left (&p)[1][kept_steps], float (&column_sum)[2],
                              Sum (&dkey)[1][Width / 8], Sum (&dvalue)[1][HasValues ? Width / 8 : 1]) {
    const int first = buffer_row<Shape::queries>(query), dt = 2 * Shape::queries + first;
    Sum weight[1][Shape::queries / 8], gradient[1][Shape::queries / 8];
    clear(weight[0]);
    clear(gradient[0]);
    if constexpr (Shape::keeps_rows) {
      multiply_transposed(weight, p, queries_, first);
    } else {
      multiply_transposed(weight, keys_, row_, Width, queries_, first);
    }
    if constexpr (Shape::keeps_rows && !HasValues) {
      multiply_transposed(gradient, p, queries_, dt);
    } else {
      multiply_transposed(gradient, values_, row_, Width, queries_, dt);
    }
    const int behind = near_difference(place_.first + row_ - first_position(in_), query);
    if (is_plain(behind)) {
      drops(in_) ? weigh<false, true>(query, behind, weight[0], gradient[0], column_sum)
                 : weigh<false, false>(query, behind, weight[0], gradient[0], column_sum);
    } else {
      drops(in_) ? weigh<true, true>(query, behind, weight[0], gradient[0], column_sum)
                 : weigh<true, false>(query, behind, weight[0], gradient[0], column_sum);
    }
    for_each_pair(gradient[0], [&](int row, int column, float* values) {
      store_pair<Format>(slopes_.at(row_ + row, column), values[0], values[1]);
      values[0] *= rule_.gradient;
      values[1] *= rule_.gradient;
    });
    Left operand[1][Shape::queries / Format::depth];
    to_left<Format>(operand[0], weight[0]);
    if constexpr (HasValues) {
      multiply(dvalue, operand, queries_, dt);
    } else {
      multiply(dkey, operand, queries_, dt);
    }
    to_left<Format>(operand[0], gradient[0]);
    multiply(dkey, operand, queries_, first);
  }

  // Whether every query of the tile sees every key of this warp, the first of which stands `behind` the first query,
  // and none of them is itself. Queries behind the last token count nowhere.
  GPU_DEVICE bool is_plain(int behind) const {
    if (has_segments(in_) || place_.first + row_ + 16 > in_.keys.tokens) return false;
    return behind + 15 < 0 || (!in_.causal && (!in_.distance || !in_.to_themselves || behind >= Shape::queries));
  }

  // m P in place of scores, and dS in place of dt p^T.
  template <bool Masked, bool Drops>
  GPU_DEVICE void weigh(std::int64_t query, int behind_first, Sum (&weight)[Shape::queries / 8],
                        Sum (&gradient)[Shape::queries / 8], float (&column_sum)[2]) const {
    const DropoutOf<Drops> dropout(in_, place_, query + 2 * (lane_index() % 4), key_);
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto key = key_ + 8 * h;
      const auto segment = Masked ? segment_of(in_.keys, place_.batch, key) : 0;
      const float half_bias = in_.distance && gpu::within(key < in_.keys.tokens)
                                  ? backward_.half_bias[place_.row(in_, in_.keys, key)]
                                  : 0.0f;
      const int behind = behind_first + lane_index() / 4 + 8 * h;
      GPU_UNROLL
      for (int n = 0; n < Shape::queries / 8; ++n) {
        GPU_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          const int column = 8 * n + 2 * (lane_index() % 4) + e % 2, i = buffer_row<Shape::queries>(query) + column;
          const bool visible = !Masked || gpu::within(sees(in_, segment_[i], segment, behind - column));
          rule_.weigh(weight[n].r[e], gradient[n].r[e], visible, Masked && in_.to_themselves && behind == column,
                      half_bias, log2_sum_[i], delta_[i],
                      Drops ? dropout.at(gpu::counter(((8 * n + e % 2) << query_shift) + 8 * h)) : 1.0f);
          column_sum[h] += gradient[n].r[e];
        }
      }
    }
  }

  // dS p, of the 16 queries and the columns that are this warp's.
  GPU_DEVICE void add_to_dq(std::int64_t query) {
    const int row = warp_index() % Shape::row_groups * 16;
    const int column = warp_index() / Shape::row_groups * Shape::columns;
    Sum dq[Shape::columns / 8];
    clear(dq);
    float row_sum[2] = {0, 0};
    gpu::sync_threads();                        // all of dS^T is there
    GPU_UNROLL_BY(Format::depth == 16 ? 4 : 1)  // what is wider would be loaded ahead into too many registers
    for (int k = 0; k < Shape::rows; k += Format::depth) {
      Left left;
      load_transposed(left, slopes_, k, row);
      if (in_.distance) add_rows<Format>(row_sum, left);
      GPU_UNROLL
      for (int n = 0; n < Shape::columns / 8; n += 2) {
        if (column + 8 * n >= Width) continue;  // the same for a whole warp
        Right right[2];
        load(right, keys_, k, column + 8 * n);
        multiply_add(Format(), dq[n], left, right[0]);
        multiply_add(Format(), dq[n + 1], left, right[1]);
      }
    }
    if (column >= Width || !gpu::within(query + row < in_.queries.tokens)) return;  // the same for a whole warp
    wait_for_turn(query);
    add_in_memory(query + row, column, dq);
    if (in_.distance && column == 0) add_row_sums(query + row + lane_index() / 4, row_sum);
    end_turn(query);
  }

  // Warps add to their part of a tile of dq in the order of the keys of their blocks. All blocks before this one have
  // begun: they have lower numbers.
  GPU_DEVICE unsigned* turn_of(std::int64_t query) const {
    return turns_at(backward_, place_, query / Shape::queries) + warp_index();
  }
  GPU_DEVICE unsigned turn() const { return static_cast<unsigned>(place_.first / Shape::rows); }
  GPU_DEVICE void wait_for_turn(std::int64_t query) const {
    if (turn() == 0) return;
    if (lane_index() == 0) gpu::wait_for(turn_of(query), turn());
    gpu::sync_warp();
  }
  GPU_DEVICE void end_turn(std::int64_t query) const {
    gpu::sync_warp();
    if (lane_index() == 0) gpu::announce(turn_of(query), turn() + 1);
  }

  // The first block stores, the others add: where the GPU cannot add in memory, all is loaded before the first store,
  // for what follows a store would wait for memory once more.
  GPU_DEVICE void add_in_memory(std::int64_t query, int first_column, const Sum (&dq)[Shape::columns / 8]) const {
    float* at = dq_sum_at<Width>(backward_, place_, query) + first_column / 8 * dq_sum_step;
    const auto exists = [first_column](int n) { return first_column + 8 * n < Width; };
    if constexpr (gpu::adds_in_memory) {
      GPU_UNROLL
      for (int n = 0; n < Shape::columns / 8; ++n) {
        if (!exists(n)) continue;
        if (turn() == 0) {
          gpu::store_handed_on(at + n * dq_sum_step, dq[n].r);
        } else {
          gpu::add_handed_on(at + n * dq_sum_step, dq[n].r);
        }
      }
    } else {
      float sum[Shape::columns / 8][4];
      GPU_UNROLL
      for (int n = 0; n < Shape::columns / 8; ++n) {
        for (float& value : sum[n]) value = 0;
        if (turn() > 0 && exists(n)) gpu::load_handed_on(sum[n], at + n * dq_sum_step);
      }
      GPU_UNROLL
      for (int n = 0; n < Shape::columns / 8; ++n) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) sum[n][e] += dq[n].r[e];
        if (exists(n)) gpu::store_handed_on(at + n * dq_sum_step, sum[n]);
      }
    }
  }

  GPU_DEVICE void add_in_memory(float* sum, float value) const {
    gpu::store_handed_on(sum, turn() == 0 ? value : gpu::load_handed_on(sum) + value);
  }

  GPU_DEVICE void add_row_sums(std::int64_t query, const float (&row_sum)[2]) const {
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float sum = in_.scale * sum_of_row(row_sum[h]);
      if (lane_index() % 4 == 0 && gpu::within(query + 8 * h < in_.queries.tokens))
        add_in_memory(backward_.row_sum + place_.row(in_, in_.queries, query + 8 * h), sum);
    }
  }

  GPU_DEVICE void finish(Sum (&dkey)[Width / 8], Sum (&dvalue)[HasValues ? Width / 8 : 1],
                         const float (&column_sum)[2]) const {
    const auto first = Shape::saves_registers ? key_ - lane_index() / 4 : place_.first + row_;
    if constexpr (HasValues)
      store<Format>(dvalue, static_cast<Element*>(backward_.dvalues), backward_.dvalue_strides, in_, in_.keys, place_,
                    first);
    if (!in_.to_themselves && !in_.distance) {
      store<Format>(dkey, static_cast<Element*>(backward_.keys.dp), backward_.keys.dp_strides, in_, in_.keys, place_,
                    first);
      return;
    }
    for_each_pair(dkey, [&](int row, int column, const float* values) {
      const auto token = first + row;
      if (!gpu::within(token < in_.keys.tokens) || !gpu::within(column < in_.width)) return;
      float* at = backward_.dkey + place_.offset(contiguous_strides(in_, in_.keys), token) + column;
      at[0] = values[0];
      at[1] = values[1];
    });
    if (!in_.distance) return;
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float sum = in_.scale * sum_of_row(column_sum[h]);
      if (lane_index() % 4 == 0 && gpu::within(key_ + 8 * h < in_.keys.tokens))
        backward_.column_sum[place_.row(in_, in_.keys, key_ + 8 * h)] = sum;
    }
  }

  const MetricBackward& backward_;
  const MetricInputs& in_;
  ScoreRule rule_;
  Place place_;
  Tokens keys_, values_;  // one tile unless values are given
  Tokens queries_;        // two tiles of q, then two of dt
  Slopes slopes_;
  std::int32_t* segment_;
  float *log2_sum_, *delta_;
  int row_;           // of this warp's 16 keys
  std::int64_t key_;  // this lane's first; its second is 8 further
};

// Blocks number themselves: in which order a GPU begins them is not specified.
template <class Format, int Width, bool HasValues>
GPU_KERNEL((PassShape<Format, Width, HasValues>::threads))
metric_pass_kernel(const MetricBackward backward) {
  GPU_SHARED_MEMORY(memory);
  auto* number = reinterpret_cast<unsigned*>(memory);
  if (gpu::thread_index() == 0) *number = gpu::take_number(begun_blocks(backward));
  gpu::sync_threads();
  const typename PassShape<Format, Width, HasValues>::Number own = *number;
  gpu::sync_threads();  // the keys come where the number was
  BackwardPass<Format, Width, HasValues>(backward, memory, own).run();
}

}  // namespace metaformer::cuda
