#pragma once
// Backward in two kernels without atomics: one block per tile of queries gives dq, one per tile of keys gives dp; every
// sum has one owner and a fixed order. Neither the weights nor their gradients leave registers.
//
//   delta_i = dt_i . t_i,  dS = P (dt p^T - delta)            P = exp2(scores - log2_sum)
//   dq = scale a dS p  [distance: - rho p - c p]               a = 1, or 2 for a distance
//   dp = dq M^T + P^T dt + scale a dS^T q  [distance: - (rho + c) q]
//
// with rho_i = scale sum_j dS_ij and c_j = scale sum_i dS_ij, the diagonal of dS being 0 for a distance (a point's
// distance to itself is 0). rho is 0 but for rounding; without it the gradient of M drowns in low precision. The row
// kernel leaves out c, which only the column kernel knows; that one puts it into both results.

#include <cmath>

#include "cuda/metric_tiles.h"

namespace metaformer::cuda {

template <class Format, int Width>
struct BackwardShape {
  using Element = typename Format::Element;
  static constexpr int warps = 4, threads = warps * gpu::warp_size;
  static constexpr int rows = 16 * warps;  // that a block owns
  static constexpr bool narrow = sizeof(Element) == 2;
  // Rows of the tiles that pass by: as many as registers allow, those of split operands the fewest.
  static constexpr int streamed = narrow && Width <= 64 ? 64 : is_split<Format> && Width > 32 ? 16 : 32;
  static constexpr int ld = padded_row<Format, Width>;

  // Whether what a block owns stays in registers, so that streamed tiles may take its place.
  static constexpr bool keeps_rows = !is_split<Format> || Width <= 16;

  // Row kernel: two streamed tiles, and what the block owns of q and dt.
  static constexpr int first_key_row = keeps_rows ? 0 : 2 * rows;
  static constexpr int row_tiles = first_key_row + (2 * rows > 2 * streamed && keeps_rows ? 2 * rows : 2 * streamed);
  static constexpr int row_tile_bytes = row_tiles * ld * static_cast<int>(sizeof(Element));
  static constexpr int row_shared_bytes = row_tile_bytes + 2 * streamed * 8;  // segments and biases

  // Column kernel: two streamed tiles of q and of dt, or what the block owns of p and the metric.
  static constexpr int first_query_row = keeps_rows ? 0 : rows;
  static constexpr int column_tiles = first_query_row + (rows + Width > 4 * streamed ? rows + Width : 4 * streamed);
  static constexpr int column_tile_bytes = column_tiles * ld * static_cast<int>(sizeof(Element));
  static constexpr int column_shared_bytes = column_tile_bytes + 2 * streamed * 12;  // segments, log2 sums, deltas
};

// What both kernels know of a score.
struct ScoreRule {
  const MetricInputs& in;
  float exponent;  // of 2, per unit of q . p + half_bias
  float gradient;  // of the score, per unit of q . p

  GPU_DEVICE explicit ScoreRule(const MetricInputs& inputs)
      : in(inputs), exponent(score_gradient(inputs) * log2_e), gradient(score_gradient(inputs)) {}

  // P and, in place of dP, dS.
  GPU_DEVICE void weigh(float& product, float& gradient_of_weight, bool visible, bool diagonal, float half_bias,
                        float log2_sum, float delta) const {
    const float score = in.distance ? product + half_bias : product;
    product = visible ? gpu::exp2_approximate(gpu::fused_multiply_add(score, exponent, -log2_sum)) : 0.0f;
    gradient_of_weight = in.distance && diagonal ? 0.0f : product * (gradient_of_weight - delta);
  }
};

template <class Format, int Width>
class RowBlock {
 public:
  using Shape = BackwardShape<Format, Width>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  static constexpr int steps = Width / Format::depth;

  GPU_DEVICE RowBlock(const MetricBackward& backward, unsigned char* memory)
      : backward_(backward),
        in_(backward.in),
        rule_(in_),
        place_(last_tile_first(in_, Shape::rows)),
        tiles_{reinterpret_cast<Element*>(memory)},
        segment_(reinterpret_cast<std::int32_t*>(memory + Shape::row_tile_bytes)),
        half_bias_(reinterpret_cast<float*>(segment_ + 2 * Shape::streamed)),
        row_(16 * warp_index()),
        query_(place_.first + row_ + lane_index() / 4) {}

  GPU_DEVICE void run() {
    Left q[1][steps], dt[1][steps];
    start_own();
    finish_loads();
    load(q[0], tiles_, row_);
    load(dt[0], own_dt(), row_);
    float delta[2], log2_sum[2];
    prepare_rows(delta, log2_sum);
    Sum dq[1][Width / 8];
    clear(dq[0]);
    float score_sum[2] = {0, 0};
    const auto end = key_end(in_, place_, Shape::rows);
    if (Shape::keeps_rows) gpu::sync_threads();  // what the block owns is in registers: key tiles take its place
    start_keys(0);
    for (std::int64_t key = 0; key < end; key += Shape::streamed) {
      finish_loads();
      if (key + Shape::streamed < end) start_keys(key + Shape::streamed);
      add_keys(key, q, dt, delta, log2_sum, score_sum, dq);
    }
    finish(dq[0], score_sum);
  }

 private:
  GPU_DEVICE Tokens own_dt() const { return {tiles_.at(Shape::rows, 0)}; }
  GPU_DEVICE Tokens keys() const { return {tiles_.at(Shape::first_key_row, 0)}; }

  GPU_DEVICE void start_own() {
    start_load_tokens<Width, Shape::threads>(tiles_, Shape::rows, backward_.q, backward_.q_strides, in_, place_,
                                             place_.first);
    start_load_tokens<Width, Shape::threads>(own_dt(), Shape::rows, backward_.dt, backward_.dt_strides, in_, place_,
                                             place_.first);
  }

  GPU_DEVICE void prepare_rows(float (&delta)[2], float (&log2_sum)[2]) const {
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto token = query_ + 8 * h;
      const bool exists = gpu::within(token < in_.tokens);
      float sum = 0;
      for (int c = 2 * (lane_index() % 4); exists && c < in_.width; c += 8) {
        const auto* t = tokens_at<Format>(backward_.t, backward_.t_strides, place_, token) + c;
        const auto* dt = tokens_at<Format>(backward_.dt, backward_.dt_strides, place_, token) + c;
        sum += Format::to_float(t[0]) * Format::to_float(dt[0]) + Format::to_float(t[1]) * Format::to_float(dt[1]);
      }
      delta[h] = sum_of_row(sum);
      log2_sum[h] = exists ? backward_.log2_sum[place_.row(in_, token)] : INFINITY;
      if (exists && lane_index() % 4 == 0) backward_.delta[place_.row(in_, token)] = delta[h];
    }
  }

  GPU_DEVICE void start_keys(std::int64_t key) {
    start_load_keys<Width, Shape::threads, Shape::streamed>(keys(), segment_, half_bias_, backward_.half_bias, in_,
                                                            place_, key);
  }

  GPU_DEVICE void add_keys(std::int64_t key, Left (&q)[1][steps], Left (&dt)[1][steps], const float (&delta)[2],
                           const float (&log2_sum)[2], float (&score_sum)[2], Sum (&dq)[1][Width / 8]) {
    const int first = buffer_row<Shape::streamed>(key);
    Sum weight[1][Shape::streamed / 8], gradient[1][Shape::streamed / 8];
    clear(weight[0]);
    clear(gradient[0]);
    if constexpr (!Shape::keeps_rows) load(q[0], tiles_, row_);
    multiply_transposed(weight, q, keys(), first);
    if constexpr (!Shape::keeps_rows) load(dt[0], own_dt(), row_);
    multiply_transposed(gradient, dt, keys(), first);
    const std::int32_t segment[2] = {segment_of(in_, place_.batch, query_), segment_of(in_, place_.batch, query_ + 8)};
    GPU_UNROLL
    for (int n = 0; n < Shape::streamed / 8; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int h = e / 2, column = 8 * n + 2 * (lane_index() % 4) + e % 2;
        const bool visible = gpu::within(sees(in_, query_ + 8 * h, segment[h], key + column, segment_[first + column]));
        rule_.weigh(weight[0][n].r[e], gradient[0][n].r[e], visible, key + column == query_ + 8 * h,
                    in_.distance ? half_bias_[first + column] : 0.0f, log2_sum[h], delta[h]);
        score_sum[h] += gradient[0][n].r[e];
      }
    }
    Left operand[1][Shape::streamed / Format::depth];
    to_left<Format>(operand[0], gradient[0]);
    multiply(dq, operand, keys(), first);
  }

  GPU_DEVICE void finish(Sum (&dq)[Width / 8], float (&score_sum)[2]) const {
    float rho[2];
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      rho[h] = in_.scale * sum_of_row(score_sum[h]);
      if (in_.distance && lane_index() % 4 == 0 && gpu::within(query_ + 8 * h < in_.tokens))
        backward_.score_sum[place_.row(in_, query_ + 8 * h)] = rho[h];
    }
    for_each_pair(dq, [&](int row, int column, float* values) {
      const auto token = place_.first + row_ + row;
      const bool exists = gpu::within(token < in_.tokens) && gpu::within(column < in_.width);
      GPU_UNROLL
      for (int e = 0; e < 2; ++e) {
        values[e] *= rule_.gradient;
        if (in_.distance && exists)
          values[e] -=
              rho[row / 8] * Format::to_float(tokens_at<Format>(in_.p, in_.p_strides, place_, token)[column + e]);
      }
    });
    store<Format>(dq, static_cast<Element*>(backward_.dq), contiguous_strides(in_), in_, place_, place_.first + row_);
  }

  const MetricBackward& backward_;
  const MetricInputs& in_;
  ScoreRule rule_;
  Place place_;
  Tokens tiles_;
  std::int32_t* segment_;
  float* half_bias_;
  int row_;             // of this warp's 16
  std::int64_t query_;  // this lane's first; its second is 8 further
};

template <class Format, int Width>
GPU_KERNEL((BackwardShape<Format, Width>::threads))
metric_row_kernel(const MetricBackward backward) {
  GPU_SHARED_MEMORY(memory);
  RowBlock<Format, Width>(backward, memory).run();
}

template <class Format, int Width>
class ColumnBlock {
 public:
  using Shape = BackwardShape<Format, Width>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  static constexpr int steps = Width / Format::depth;

  GPU_DEVICE ColumnBlock(const MetricBackward& backward, unsigned char* memory)
      : backward_(backward),
        in_(backward.in),
        rule_(in_),
        place_(first_tile_first(in_, Shape::rows)),
        tiles_{reinterpret_cast<Element*>(memory)},
        segment_(reinterpret_cast<std::int32_t*>(memory + Shape::column_tile_bytes)),
        log2_sum_(reinterpret_cast<float*>(segment_ + 2 * Shape::streamed)),
        delta_(log2_sum_ + 2 * Shape::streamed),
        row_(16 * warp_index()),
        key_(place_.first + row_ + lane_index() / 4) {}

  GPU_DEVICE void run() {
    Left p[1][steps];
    Sum dp[1][Width / 8];
    load_own(p[0], dp);
    float score_sum[2] = {0, 0};
    const std::int64_t first = in_.causal ? place_.first / Shape::streamed * Shape::streamed : 0;
    start_queries(first);
    for (auto query = first; query < in_.tokens; query += Shape::streamed) {
      finish_loads();
      if (query + Shape::streamed < in_.tokens) start_queries(query + Shape::streamed);
      add_queries(query, p, score_sum, dp);
    }
    if (in_.distance) add_score_sums(dp[0], score_sum);
    store<Format>(dp[0], static_cast<Element*>(backward_.dp), backward_.dp_strides, in_, place_, place_.first + row_);
  }

 private:
  // What is loaded after p: dq and the metric, then tiles of q and dt.
  GPU_DEVICE Tokens later() const { return {tiles_.at(Shape::first_query_row, 0)}; }

  // p as an operand, and dp = dq M^T to start from.
  GPU_DEVICE void load_own(Left (&p)[steps], Sum (&dp)[1][Width / 8]) {
    const Tokens metric{later().at(Shape::rows, 0)};
    start_load_tokens<Width, Shape::threads>(tiles_, Shape::rows, in_.p, in_.p_strides, in_, place_, place_.first);
    start_load_metric<Width, Shape::threads>(metric, in_, place_.head);
    finish_loads();
    load(p, tiles_, row_);
    if (Shape::keeps_rows) gpu::sync_threads();  // p is in registers: dq takes its place
    const auto strides = contiguous_strides(in_);
    start_load_tokens<Width, Shape::threads>(later(), Shape::rows, backward_.dq, strides, in_, place_, place_.first);
    finish_loads();
    if (in_.form == MetricForm::dense) {
      Left dq[1][steps];
      load(dq[0], later(), row_);
      clear(dp[0]);
      multiply_transposed(dp, dq, metric, 0);
    } else {
      load(dp[0], later(), row_);
      if (in_.form == MetricForm::diagonal) scale_columns(dp[0], metric);
    }
    gpu::sync_threads();  // dq and the metric have been read: query tiles take their place
  }

  GPU_DEVICE void start_queries(std::int64_t query) {
    const int first = buffer_row<Shape::streamed>(query);
    start_load_tokens<Width, Shape::threads>(Tokens{later().at(first, 0)}, Shape::streamed, backward_.q,
                                             backward_.q_strides, in_, place_, query);
    start_load_tokens<Width, Shape::threads>(Tokens{later().at(2 * Shape::streamed + first, 0)}, Shape::streamed,
                                             backward_.dt, backward_.dt_strides, in_, place_, query);
    for (int i = gpu::thread_index(); i < Shape::streamed; i += Shape::threads) {
      const bool exists = gpu::within(query + i < in_.tokens);
      segment_[first + i] = segment_of(in_, place_.batch, query + i);
      log2_sum_[first + i] = exists ? backward_.log2_sum[place_.row(in_, query + i)] : INFINITY;
      delta_[first + i] = exists ? backward_.delta[place_.row(in_, query + i)] : 0.0f;
    }
  }

  GPU_DEVICE void add_queries(std::int64_t query, Left (&p)[1][steps], float (&score_sum)[2], Sum (&dp)[1][Width / 8]) {
    const int first = buffer_row<Shape::streamed>(query), dt = 2 * Shape::streamed + first;
    Sum weight[1][Shape::streamed / 8], gradient[1][Shape::streamed / 8];
    clear(weight[0]);
    clear(gradient[0]);
    if constexpr (!Shape::keeps_rows) load(p[0], tiles_, row_);
    multiply_transposed(weight, p, later(), first);
    multiply_transposed(gradient, p, later(), dt);
    weigh(query, weight[0], gradient[0], score_sum);
    Left operand[1][Shape::streamed / Format::depth];
    to_left<Format>(operand[0], weight[0]);
    multiply(dp, operand, later(), dt);
    to_left<Format>(operand[0], gradient[0]);
    multiply(dp, operand, later(), first);
  }

  GPU_DEVICE void weigh(std::int64_t query, Sum (&weight)[Shape::streamed / 8], Sum (&gradient)[Shape::streamed / 8],
                        float (&score_sum)[2]) const {
    const std::int32_t segment[2] = {segment_of(in_, place_.batch, key_), segment_of(in_, place_.batch, key_ + 8)};
    float half_bias[2] = {0, 0};
    GPU_UNROLL
    for (int h = 0; h < 2; ++h)
      if (in_.distance && gpu::within(key_ + 8 * h < in_.tokens))
        half_bias[h] = backward_.half_bias[place_.row(in_, key_ + 8 * h)];
    GPU_UNROLL
    for (int n = 0; n < Shape::streamed / 8; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int h = e / 2, column = 8 * n + 2 * (lane_index() % 4) + e % 2,
                  i = buffer_row<Shape::streamed>(query) + column;
        const bool visible = gpu::within(sees(in_, query + column, segment_[i], key_ + 8 * h, segment[h]));
        rule_.weigh(weight[n].r[e], gradient[n].r[e], visible, query + column == key_ + 8 * h, half_bias[h],
                    log2_sum_[i], delta_[i]);
        score_sum[h] += gradient[n].r[e];
        gradient[n].r[e] *= rule_.gradient;
      }
    }
  }

  // dp -= (rho + 2 c) q and dq -= c p: c once for itself and once through dq M.
  GPU_DEVICE void add_score_sums(Sum (&dp)[Width / 8], const float (&score_sum)[2]) const {
    float c[2], both[2] = {0, 0};
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      c[h] = in_.scale * sum_of_row(score_sum[h]);
      if (gpu::within(key_ + 8 * h < in_.tokens))
        both[h] = backward_.score_sum[place_.row(in_, key_ + 8 * h)] + 2 * c[h];
    }
    for_each_pair(dp, [&](int row, int column, float* values) {
      const auto token = place_.first + row_ + row;
      if (!gpu::within(token < in_.tokens) || !gpu::within(column < in_.width)) return;
      const auto* p = tokens_at<Format>(in_.p, in_.p_strides, place_, token) + column;
      const auto* q = tokens_at<Format>(backward_.q, backward_.q_strides, place_, token) + column;
      auto* dq = static_cast<Element*>(backward_.dq) + place_.offset(contiguous_strides(in_), token) + column;
      GPU_UNROLL
      for (int e = 0; e < 2; ++e) {
        values[e] -= both[row / 8] * Format::to_float(q[e]);
        dq[e] = Format::from_float(Format::to_float(dq[e]) - c[row / 8] * Format::to_float(p[e]));
      }
    });
  }

  const MetricBackward& backward_;
  const MetricInputs& in_;
  ScoreRule rule_;
  Place place_;
  Tokens tiles_;  // streamed: two of q, then two of dt
  std::int32_t* segment_;
  float *log2_sum_, *delta_;
  int row_;           // of this warp's 16
  std::int64_t key_;  // this lane's first; its second is 8 further
};

template <class Format, int Width>
GPU_KERNEL((BackwardShape<Format, Width>::threads))
metric_column_kernel(const MetricBackward backward) {
  GPU_SHARED_MEMORY(memory);
  ColumnBlock<Format, Width>(backward, memory).run();
}

}  // namespace metaformer::cuda
