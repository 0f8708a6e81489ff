#pragma once
// What comes before and after the pass over all pairs: delta of every query, and from the sums dp and dq.

#include "cuda/metric_backward.h"
#include "cuda/metric_store.h"

namespace metaformer::cuda {

// Of kernels with four lanes a token.
struct PerTokenShape {
  static constexpr int threads = 128, rows = threads / 4;
};

// delta, and no block has had its turn.
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
  if (token % turn_rows == 0) *turn_at(backward, place, token / turn_rows) = 0;
}

// dp of keys that are other tokens than the queries, and for a distance their dq.
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
  const float c = in.distance ? backward.column_sum[place.row(in, in.keys, token)] : 0.0f;
  for (int i = lane_index() % 4; i < in.width; i += 4) {
    float dp = backward.dkey[at + i];
    if (in.distance) {
      dp -= 2 * c * Format::to_float(tokens_at<Format>(keys.q, keys.q_strides, place, token)[i]);
      static_cast<Element*>(keys.dq)[at + i] = Format::from_float(-c * Format::to_float(p[i]));
    }
    static_cast<Element*>(keys.dp)[place.offset(keys.dp_strides, token) + i] = Format::from_float(dp);
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
    for (int n = 0; exists && n < Width / 8; ++n) gpu::load_handed_on(dq[n].r, at + n * dq_sum_step);
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

}  // namespace metaformer::cuda
