#pragma once
// Forward: flash attention (Dao et al. 2022, 2023) with q = p M made on the way, and one tile for keys and values alike
// unless values are given.

#include <cmath>

#include "cuda/metric_tiles.h"

namespace metaformer::cuda {

template <class Format, int Width, bool HasValues>
struct ForwardShape {
  using Element = typename Format::Element;
  static constexpr bool narrow = sizeof(Element) == 2;
  // Two blocks of 16 rows a warp halve the reads of shared memory, where registers suffice.
  static constexpr int row_blocks = narrow && Width <= 64 ? 2 : 1;
  static constexpr int warps = narrow && Width > 64 ? 8 : 4;
  static constexpr int threads = warps * gpu::warp_size;
  static constexpr int rows = warps * row_blocks * 16;  // queries of a block
  static constexpr bool few_keys = narrow && HasValues && Width > 96;
  static constexpr int keys = few_keys ? 32 : narrow || Width <= 32 ? 64 : is_split<Format> ? 16 : 32;  // of a tile
  // Whether q stays in registers; else it lies where p was.
  static constexpr bool keeps_q = !is_split<Format> || Width <= 64;
  static constexpr int q_steps = keeps_q ? Width / Format::depth : 1;
  // Whether the mask counts columns from the lane's first. Their numbers are then constants; counted from the tile's
  // first they stay in registers from tile to tile.
  static constexpr bool counts_from_lane = is_split<Format> && Width == 32;
  static constexpr int ld = padded_row<Format, Width>;
  static constexpr int form_rows = metric_rows<Format, Width>;
  // Two tiles of keys and of values, or part of the metric.
  static constexpr int tile_rows = (HasValues ? 4 : 2) * keys, key_rows = form_rows > tile_rows ? form_rows : tile_rows;
  static constexpr int tile_bytes = (rows + key_rows) * ld * static_cast<int>(sizeof(Element));
  static constexpr int shared_bytes = tile_bytes + 2 * keys * 8;  // segments and biases of two key tiles
  static_assert(shared_bytes <= most_shared_bytes);
};

// exp2 of scores times `scale`, row by row, as they come in tile by tile.
template <int Columns>
struct OnlineSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  // What is subtracted from exponents: the maximum times the scale, rounded; 0 while nothing is visible. It is kept,
  // not computed again: a product and its difference to another may be fused, and would then not cancel exactly.
  float base[2] = {0, 0};
  float total[2] = {0, 0};  // of this lane's columns

  // Turns scores into weights relative to the new maximum; `correction` is what earlier weights are multiplied by.
  GPU_DEVICE void update(Sum (&score)[Columns], float scale, float (&correction)[2]) {
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      float largest = maximum[h];
      GPU_UNROLL
      for (int n = 0; n < Columns; ++n) {
        largest = gpu::maximum(largest, score[n].r[2 * h]);
        largest = gpu::maximum(largest, score[n].r[2 * h + 1]);
      }
      largest = maximum_of_row(largest);
      const float next = largest == -INFINITY ? 0.0f : largest * scale;
      correction[h] = maximum[h] == -INFINITY ? 0.0f : gpu::exp2_approximate(base[h] - next);
      maximum[h] = largest;
      base[h] = next;
      total[h] *= correction[h];
      GPU_UNROLL
      for (int n = 0; n < Columns; ++n) {
        GPU_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          score[n].r[e] = gpu::exp2_approximate(gpu::fused_multiply_add(score[n].r[e], scale, -next));
          total[h] += score[n].r[e];
        }
      }
    }
  }
};

template <class Format, int Width, bool HasValues>
class ForwardBlock {
 public:
  using Shape = ForwardShape<Format, Width, HasValues>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;

  GPU_DEVICE ForwardBlock(const MetricForward& forward, unsigned char* memory)
      : forward_(forward),
        in_(forward.in),
        place_(last_tile_first(in_, in_.queries, Shape::rows)),
        queries_{reinterpret_cast<Element*>(memory)},
        keys_{queries_.at(Shape::rows, 0)},
        values_{HasValues ? keys_.at(2 * Shape::keys, 0) : keys_.data},
        segment_(reinterpret_cast<std::int32_t*>(memory + Shape::tile_bytes)),
        half_bias_(reinterpret_cast<float*>(segment_ + 2 * Shape::keys)),
        first_row_(warp_index() * Shape::row_blocks * 16),
        scale_(score_gradient(in_) * log2_e) {}

  GPU_DEVICE void run() {
    start_load_p<Width, Shape::threads>(queries_, Shape::rows, in_, in_.queries, place_, place_.first);
    Left q[Shape::row_blocks][Shape::q_steps];
    make_q(q);
    Sum out[Shape::row_blocks][Width / 8];
    OnlineSoftmax<Shape::keys / 8> softmax[Shape::row_blocks];
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) clear(out[block]);
    gpu::sync_threads();  // the metric has been read: key tiles take its place
    const auto end = key_end(in_, place_, Shape::rows);
    if (end > 0) start_keys(0);
    for (std::int64_t key = 0; key < end; key += Shape::keys) {
      finish_loads();
      if (key + Shape::keys < end) start_keys(key + Shape::keys);
      add_keys(key, q, softmax, out);
    }
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) finish(softmax[block], out[block], first_row_ + 16 * block);
  }

 private:
  GPU_DEVICE void make_q(Left (&q)[Shape::row_blocks][Shape::q_steps]) {
    Sum sum[Shape::row_blocks][Width / 8];
    transform<Shape::threads>(sum, queries_, first_row_, keys_, in_, place_.head);
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      if (forward_.q != nullptr)
        store<Format>(sum[block], static_cast<Element*>(forward_.q), contiguous_strides(in_, in_.queries), in_,
                      in_.queries, place_, place_.first + first_row_ + 16 * block);
      if constexpr (Shape::keeps_q) to_left<Format>(q[block], sum[block]);
    }
    if constexpr (!Shape::keeps_q) put_q_in_place_of_p(sum[0]);
  }

  // Into the 16 rows of this warp, which no other reads; all of its lanes have read them when their last product is
  // made.
  GPU_DEVICE void put_q_in_place_of_p(Sum (&q)[Width / 8]) {
    for_each_pair(q, [&](int row, int column, const float* values) {
      auto* at = queries_.at(first_row_ + row, column);
      at[0] = Format::from_float(values[0]);
      at[1] = Format::from_float(values[1]);
    });
  }

  GPU_DEVICE void start_keys(std::int64_t key) {
    start_load_keys<Width, Shape::threads, Shape::keys>(keys_, segment_, half_bias_, forward_.half_bias, in_, place_,
                                                        key);
    if constexpr (HasValues)
      start_load_tokens<Width, Shape::threads>(Tokens{values_.at(buffer_row<Shape::keys>(key), 0)}, Shape::keys,
                                               in_.values, in_.value_strides, in_.keys.tokens, in_.width, place_, key);
  }

  GPU_DEVICE void add_keys(std::int64_t key, const Left (&q)[Shape::row_blocks][Shape::q_steps],
                           OnlineSoftmax<Shape::keys / 8> (&softmax)[Shape::row_blocks],
                           Sum (&out)[Shape::row_blocks][Width / 8]) {
    const int at = buffer_row<Shape::keys>(key);
    Sum score[Shape::row_blocks][Shape::keys / 8];
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) clear(score[block]);
    if constexpr (Shape::keeps_q)
      multiply_transposed(score, q, keys_, at);
    else
      multiply_transposed(score, queries_, first_row_, Width, keys_, at);
    Left weight[Shape::row_blocks][Shape::keys / Format::depth];
    const int ahead = near_difference(place_.first + first_row_ + first_position(in_), key);
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      const auto first = place_.first + first_row_ + 16 * block;
      if (in_.distance) add_bias(score[block], key);
      if (!is_plain(ahead + 16 * block, key)) mask(score[block], first, ahead + 16 * block, key);
      float correction[2];
      softmax[block].update(score[block], scale_, correction);
      if (drops(in_)) drop(score[block], first, key);
      GPU_UNROLL
      for (int n = 0; n < Width / 8; ++n) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) out[block][n].r[e] *= correction[e / 2];
      }
      to_left<Format>(weight[block], score[block]);
    }
    multiply(out, weight, values_, at);
  }

  GPU_DEVICE void add_bias(Sum (&score)[Shape::keys / 8], std::int64_t key) const {
    GPU_UNROLL
    for (int n = 0; n < Shape::keys / 8; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e)
        score[n].r[e] += half_bias_[buffer_row<Shape::keys>(key) + 8 * n + 2 * (lane_index() % 4) + e % 2];
    }
  }

  // Whether every query of 16 rows, the first of which stands `ahead` of the tile's first key, sees every key of the
  // tile. What lies behind the last query is not stored.
  GPU_DEVICE bool is_plain(int ahead, std::int64_t key) const {
    return key + Shape::keys <= in_.keys.tokens && !has_segments(in_) && (!in_.causal || Shape::keys <= ahead + 1);
  }

  GPU_DEVICE void mask(Sum (&score)[Shape::keys / 8], std::int64_t first, int ahead, std::int64_t key) const {
    const int lane_column = 2 * (lane_index() % 4), counted_from = Shape::counts_from_lane ? lane_column : 0;
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const auto query = first + lane_index() / 4 + 8 * h;
      const auto segment = segment_of(in_.queries, place_.batch, query);
      const int behind = Shape::counts_from_lane ? near_difference(key + lane_column, query + first_position(in_))
                                                 : -(ahead + lane_index() / 4 + 8 * h);
      GPU_UNROLL
      for (int n = 0; n < Shape::keys / 8; ++n) {
        GPU_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          const int column = 8 * n + lane_column - counted_from + e % 2;
          const auto of_key = segment_[buffer_row<Shape::keys>(key) + counted_from + column];
          if (!gpu::within(sees(in_, segment, of_key, behind + column))) score[n].r[e] = -INFINITY;
        }
      }
    }
  }

  // After the denominator has them all.
  GPU_DEVICE void drop(Sum (&weight)[Shape::keys / 8], std::int64_t first, std::int64_t key) const {
    const WeightDropout dropout(in_, place_, first + lane_index() / 4, key + 2 * (lane_index() % 4));
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      GPU_UNROLL
      for (int n = 0; n < Shape::keys / 8; ++n) {
        GPU_UNROLL
        for (int e = 0; e < 2; ++e)
          if (!dropout.keeps(gpu::counter((8 * h << query_shift) + 8 * n + e))) weight[n].r[2 * h + e] = 0;
      }
    }
  }

  GPU_DEVICE void finish(OnlineSoftmax<Shape::keys / 8>& softmax, Sum (&out)[Width / 8], int row) const {
    float factor[2];
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float total = sum_of_row(softmax.total[h]);
      factor[h] = total == 0 ? 0.0f : in_.dropout.factor / total;
      const auto token = place_.first + row + lane_index() / 4 + 8 * h;
      if (lane_index() % 4 == 0 && gpu::within(token < in_.queries.tokens))
        forward_.log2_sum[place_.row(in_, in_.queries, token)] =
            total == 0 ? INFINITY : softmax.base[h] + gpu::log2_approximate(total);
    }
    GPU_UNROLL
    for (int n = 0; n < Width / 8; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) out[n].r[e] *= factor[e / 2];
    }
    store<Format>(out, static_cast<Element*>(forward_.t), forward_.t_strides, in_, in_.queries, place_,
                  place_.first + row);
  }

  const MetricForward& forward_;
  const MetricInputs& in_;
  Place place_;
  Tokens queries_, keys_, values_;
  std::int32_t* segment_;
  float* half_bias_;
  int first_row_;  // of this warp
  float scale_;
};

template <class Format, int Width, bool HasValues>
GPU_KERNEL((ForwardShape<Format, Width, HasValues>::threads))
metric_forward_kernel(const MetricForward forward) {
  GPU_SHARED_MEMORY(memory);
  ForwardBlock<Format, Width, HasValues>(forward, memory).run();
}

// The key's part of a distance, which the softmax does not cancel: half_bias_j = -q_j . p_j / 2.
template <class Format, int Width>
struct BiasShape {
  static constexpr int threads = 4 * gpu::warp_size, rows = 64;
  static constexpr int ld = padded_row<Format, Width>;
  static constexpr int shared_bytes =
      (rows + metric_rows<Format, Width>)*ld * static_cast<int>(sizeof(typename Format::Element));
  static_assert(shared_bytes <= most_shared_bytes);
};

template <class Format, int Width>
GPU_KERNEL((BiasShape<Format, Width>::threads))
metric_bias_kernel(const MetricForward forward) {
  using Shape = BiasShape<Format, Width>;
  using Element = typename Format::Element;
  GPU_SHARED_MEMORY(memory);
  const auto& in = forward.in;
  const auto place = first_tile_first(in, Shape::rows);
  const Tile<Format, Shape::ld> p{reinterpret_cast<Element*>(memory)}, metric{p.at(Shape::rows, 0)};
  start_load_p<Width, Shape::threads>(p, Shape::rows, in, in.keys, place, place.first);
  const int row = 16 * warp_index();
  Sum q[1][Width / 8], own[Width / 8];
  transform<Shape::threads>(q, p, row, metric, in, place.head);
  load(own, p, row);
  float product[2] = {0, 0};
  GPU_UNROLL
  for (int n = 0; n < Width / 8; ++n) {
    GPU_UNROLL
    for (int e = 0; e < 4; ++e) product[e / 2] += rounded<Format>(q[0][n].r[e]) * own[n].r[e];
  }
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const float sum = sum_of_row(product[h]);
    const auto token = place.first + row + lane_index() / 4 + 8 * h;
    if (lane_index() % 4 == 0 && gpu::within(token < in.keys.tokens))
      forward.half_bias[place.row(in, in.keys, token)] = -0.5f * sum;
  }
  if (forward.key_q != nullptr)
    store<Format>(q[0], static_cast<Element*>(forward.key_q), contiguous_strides(in, in.keys), in, in.keys, place,
                  place.first + row);
}

}  // namespace metaformer::cuda
