#pragma once
// One block per tile of keys: dp, and of a distance what is still missing in dq.

#include "cuda/metric_backward.h"

namespace metaformer::cuda {

template <class Format, int Width>
class ColumnBlock {
 public:
  using Shape = BackwardShape<Format, Width>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  static constexpr int kept_steps = Shape::keeps_rows ? Width / Format::depth : 1;

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
    Left p[1][kept_steps];
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
  GPU_DEVICE void load_own(Left (&p)[kept_steps], Sum (&dp)[1][Width / 8]) {
    start_load_tokens<Width, Shape::threads>(tiles_, Shape::rows, in_.p, in_.p_strides, in_, place_, place_.first);
    finish_loads();
    if constexpr (Shape::keeps_rows) {
      load(p, tiles_, row_);
      gpu::sync_threads();  // p is in registers: dq takes its place
    }
    const auto strides = contiguous_strides(in_);
    start_load_tokens<Width, Shape::threads>(later(), Shape::rows, backward_.dq, strides, in_, place_, place_.first);
    transform_back(dp[0]);
    gpu::sync_threads();  // dq and the metric have been read: query tiles take their place
  }

  // dp = dq M^T. A part of the metric's rows gives as many columns.
  GPU_DEVICE void transform_back(Sum (&dp)[Width / 8]) {
    constexpr int part = metric_rows<Format, Width>;
    const Tokens metric{later().at(Shape::rows, 0)};
    if (in_.form != MetricForm::dense) {
      start_load_metric<Width, Shape::threads>(metric, in_, place_.head, 0);
      finish_loads();
      load(dp, later(), row_);
      if (in_.form == MetricForm::diagonal) scale_columns(dp, metric);
      return;
    }
    Left dq[1][kept_steps];
    GPU_UNROLL
    for (int first = 0; first < Width; first += part) {
      if (first > 0) gpu::sync_threads();  // the part before has been read
      start_load_metric<Width, Shape::threads>(metric, in_, place_.head, first);
      finish_loads();
      Sum columns[1][part / 8];
      clear(columns[0]);
      if constexpr (Shape::keeps_rows) {
        if (first == 0) load(dq[0], later(), row_);
        multiply_transposed(columns, dq, metric, 0);
      } else {
        multiply_transposed(columns, later(), row_, Width, metric, 0);
      }
      GPU_UNROLL
      for (int n = 0; n < part / 8; ++n) dp[first / 8 + n] = columns[0][n];
    }
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

  GPU_DEVICE void add_queries(std::int64_t query, const Left (&p)[1][kept_steps], float (&score_sum)[2],
                              Sum (&dp)[1][Width / 8]) {
    const int first = buffer_row<Shape::streamed>(query), dt = 2 * Shape::streamed + first;
    Sum weight[1][Shape::streamed / 8], gradient[1][Shape::streamed / 8];
    clear(weight[0]);
    clear(gradient[0]);
    if constexpr (Shape::keeps_rows) {
      multiply_transposed(weight, p, later(), first);
      multiply_transposed(gradient, p, later(), dt);
    } else {
      multiply_transposed(weight, tiles_, row_, Width, later(), first);
      multiply_transposed(gradient, tiles_, row_, Width, later(), dt);
    }
    if (is_plain(query)) {
      drops(in_) ? weigh<false, true>(query, weight[0], gradient[0], score_sum)
                 : weigh<false, false>(query, weight[0], gradient[0], score_sum);
    } else {
      drops(in_) ? weigh<true, true>(query, weight[0], gradient[0], score_sum)
                 : weigh<true, false>(query, weight[0], gradient[0], score_sum);
    }
    Left operand[1][Shape::streamed / Format::depth];
    to_left<Format>(operand[0], weight[0]);
    multiply(dp, operand, later(), dt);
    to_left<Format>(operand[0], gradient[0]);
    multiply(dp, operand, later(), first);
  }

  // Whether every query of the tile sees every key of this warp, and none of them is itself. What lies behind the last
  // token counts nowhere.
  GPU_DEVICE bool is_plain(std::int64_t query) const {
    const auto first = place_.first + row_;
    if (in_.segments != nullptr) return false;
    return query > first + 15 || (!in_.causal && (!in_.distance || query + Shape::streamed <= first));
  }

  template <bool Masked, bool Drops>
  GPU_DEVICE void weigh(std::int64_t query, Sum (&weight)[Shape::streamed / 8], Sum (&gradient)[Shape::streamed / 8],
                        float (&score_sum)[2]) const {
    const DropoutOf<Drops> dropout(in_);
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto key = key_ + 8 * h;
      const auto segment = Masked ? segment_of(in_, place_.batch, key) : 0;
      const float half_bias =
          in_.distance && gpu::within(key < in_.tokens) ? backward_.half_bias[place_.row(in_, key)] : 0.0f;
      const auto first = place_.row(in_, query) * in_.tokens + key;
      const int behind = near_difference(key, query);
      GPU_UNROLL
      for (int n = 0; n < Shape::streamed / 8; ++n) {
        GPU_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          const int column = 8 * n + 2 * (lane_index() % 4) + e % 2, i = buffer_row<Shape::streamed>(query) + column;
          const bool visible = !Masked || gpu::within(sees(in_, segment_[i], segment, behind - column));
          rule_.weigh(weight[n].r[e], gradient[n].r[e], visible, Masked && behind == column, half_bias, log2_sum_[i],
                      delta_[i], Drops ? dropout.at(gpu::counter(first + column * in_.tokens)) : 1.0f);
          score_sum[h] += gradient[n].r[e];
          gradient[n].r[e] *= rule_.gradient;
        }
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
