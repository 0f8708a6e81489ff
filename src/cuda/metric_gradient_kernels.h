#pragma once
// dM = p^T dq over batch and tokens: every block sums its share of the tokens, then the shares are added in order.

#include "cuda/metric_launch.h"
#include "cuda/metric_tiles.h"

namespace metaformer::cuda {

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

}  // namespace metaformer::cuda
