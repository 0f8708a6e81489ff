#pragma once
// One block per tile of queries: dq, what a row contributes to the gradient of the metric, delta and rho.

#include "cuda/metric_backward.h"

namespace metaformer::cuda {

template <class Format, int Width>
class RowBlock {
 public:
  using Shape = BackwardShape<Format, Width>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  static constexpr int kept_steps = Shape::keeps_rows ? Width / Format::depth : 1;

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
    Left q[1][kept_steps], dt[1][kept_steps];
    start_own();
    finish_loads();
    if constexpr (Shape::keeps_rows) {
      load(q[0], tiles_, row_);
      load(dt[0], own_dt(), row_);
    }
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

  GPU_DEVICE void add_keys(std::int64_t key, const Left (&q)[1][kept_steps], const Left (&dt)[1][kept_steps],
                           const float (&delta)[2], const float (&log2_sum)[2], float (&score_sum)[2],
                           Sum (&dq)[1][Width / 8]) {
    const int first = buffer_row<Shape::streamed>(key);
    Sum weight[1][Shape::streamed / 8], gradient[1][Shape::streamed / 8];
    clear(weight[0]);
    clear(gradient[0]);
    if constexpr (Shape::keeps_rows) {
      multiply_transposed(weight, q, keys(), first);
      multiply_transposed(gradient, dt, keys(), first);
    } else {
      multiply_transposed(weight, tiles_, row_, Width, keys(), first);
      multiply_transposed(gradient, own_dt(), row_, Width, keys(), first);
    }
    if (is_plain(key)) {
      drops(in_) ? weigh<false, true>(key, weight[0], gradient[0], delta, log2_sum, score_sum)
                 : weigh<false, false>(key, weight[0], gradient[0], delta, log2_sum, score_sum);
    } else {
      drops(in_) ? weigh<true, true>(key, weight[0], gradient[0], delta, log2_sum, score_sum)
                 : weigh<true, false>(key, weight[0], gradient[0], delta, log2_sum, score_sum);
    }
    Left operand[1][Shape::streamed / Format::depth];
    to_left<Format>(operand[0], gradient[0]);
    multiply(dq, operand, keys(), first);
  }

  // Whether every query of this warp sees every key of the tile, and none of them is itself. What lies behind the last
  // query counts nowhere.
  GPU_DEVICE bool is_plain(std::int64_t key) const {
    const auto first = place_.first + row_, end = key + Shape::streamed;
    if (in_.segments != nullptr || end > in_.tokens) return false;
    return end <= first || (!in_.causal && (!in_.distance || key > first + 15));
  }

  template <bool Masked, bool Drops>
  GPU_DEVICE void weigh(std::int64_t key, Sum (&weight)[Shape::streamed / 8], Sum (&gradient)[Shape::streamed / 8],
                        const float (&delta)[2], const float (&log2_sum)[2], float (&score_sum)[2]) const {
    const int first = buffer_row<Shape::streamed>(key);
    const DropoutOf<Drops> dropout(in_);
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto query = query_ + 8 * h;
      const auto segment = Masked ? segment_of(in_, place_.batch, query) : 0;
      const auto row = place_.row(in_, query) * in_.tokens + key;
      const int behind = near_difference(key, query);
      GPU_UNROLL
      for (int n = 0; n < Shape::streamed / 8; ++n) {
        GPU_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          const int column = 8 * n + 2 * (lane_index() % 4) + e % 2;
          const bool visible = !Masked || gpu::within(sees(in_, segment, segment_[first + column], behind + column));
          rule_.weigh(weight[n].r[e], gradient[n].r[e], visible, Masked && behind + column == 0,
                      in_.distance ? half_bias_[first + column] : 0.0f, log2_sum[h], delta[h],
                      Drops ? dropout.at(gpu::counter(row + column)) : 1.0f);
          score_sum[h] += gradient[n].r[e];
        }
      }
    }
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

}  // namespace metaformer::cuda
