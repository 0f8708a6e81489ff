#pragma once
// The kernels of metric_projection.h. Both read rows in 16-byte runs straight into the layout of results, so that only
// the operands of products take shared memory.

#include "cuda/metric_projection.h"
#include "cuda/metric_tiles.h"

namespace metaformer::cuda {

// Into how many groups the columns of a head are divided. The squares of a group are summed first, in both kernels, so
// that backward computes the p of forward.
template <int Width>
constexpr int projection_column_groups = Width <= 64 ? 1 : 2;

// Adds the existing rows of 16, `first` being the token of the first, from `first_column` on. The reverse of
// for_each_run: the lanes of a row exchange what they have loaded.
template <class Format, int Count>
GPU_DEVICE void add_rows(Sum (&sum)[Count], const MetricRows& rows, const MetricInputs& in, const Place& place,
                         std::int64_t first, int first_column) {
  static_assert(Format::depth == 16);
  const int lane = lane_index() % 4;
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const auto token = first + lane_index() / 4 + 8 * h;
    const bool exists = gpu::within(token < in.queries.tokens);
    const auto* row = tokens_at<Format>(rows.data, rows.strides, place, token);
    GPU_UNROLL
    for (int n = 0; n < Count; n += 4) {
      unsigned words[4] = {0, 0, 0, 0};
      const int column = first_column + 8 * (n + lane);
      if (exists && n + lane < Count && gpu::within(column < in.width)) gpu::load_16(words, row + column);
      exchange<1>(words);
      exchange<2>(words);
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (n + i >= Count) continue;
        sum[n + i].r[2 * h] += Format::to_float(static_cast<typename Format::Element>(words[i]));
        sum[n + i].r[2 * h + 1] += Format::to_float(static_cast<typename Format::Element>(words[i] >> 16));
      }
    }
  }
}

// Copies the existing rows of 16 and Count blocks of 8 columns.
template <class Format, int Count>
GPU_DEVICE void copy_rows(const MetricRows& to, const MetricRows& from, const MetricInputs& in, const Place& place,
                          std::int64_t first, int first_column) {
  using Element = typename Format::Element;
  for (int i = lane_index(); i < 16 * Count; i += gpu::warp_size) {
    const auto token = first + i / Count;
    const int column = first_column + 8 * (i % Count);
    if (!gpu::within(token < in.queries.tokens) || !gpu::within(column < in.width)) continue;
    unsigned words[4];
    gpu::load_16(words, tokens_at<Format>(from.data, from.strides, place, token) + column);
    gpu::store_16(static_cast<Element*>(to.data) + place.offset(to.strides, token) + column, words);
  }
}

GPU_DEVICE MetricRows projection_of(const MetricInputs& in) {
  return {const_cast<void*>(in.queries.p), in.queries.p_strides};
}

GPU_DEVICE float gain_at(const MetricProjection& projection, int column) {
  return projection.gain != nullptr && gpu::within(column < projection.in.width) ? projection.gain[column] : 1.0f;
}

// Adds the squares of a row's columns, `First` to `First + Count - 1` in blocks of 8, to the sum of each row.
template <int First, int Count, int All>
GPU_DEVICE void add_squares(float (&sum)[2], const Sum (&x)[All]) {
  float squares[2] = {0, 0};
  GPU_UNROLL
  for (int n = First; n < First + Count; ++n) {
    GPU_UNROLL
    for (int e = 0; e < 4; ++e) squares[e / 2] += x[n].r[e] * x[n].r[e];
  }
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) sum[h] += sum_of_row(squares[h]);
}

GPU_DEVICE float norm_factor(const MetricProjection& projection, float squares) {
  return gpu::reciprocal_root(squares / static_cast<float>(projection.in.width) + projection.epsilon);
}

template <class Format, int Width>
struct ProjectShape {
  static constexpr int warps = 4, threads = warps * gpu::warp_size;
  static constexpr int row_blocks = Width <= 64 ? 2 : 1;  // of 16 rows, per warp; they share the reads of M
  static constexpr int rows = 16 * warps * row_blocks;
  static constexpr int ld = padded_row<Format, Width>;
  static constexpr int shared_bytes = Width * ld * static_cast<int>(sizeof(typename Format::Element));
  static_assert(shared_bytes <= most_shared_bytes && metric_rows<Format, Width> == Width);
};

// p and q of a block's tokens.
template <class Format, int Width>
class Project {
 public:
  using Shape = ProjectShape<Format, Width>;
  using Element = typename Format::Element;

  GPU_DEVICE Project(const MetricProjection& projection, unsigned char* memory)
      : projection_(projection),
        in_(projection.in),
        place_(first_tile_first(in_, Shape::rows)),
        metric_{reinterpret_cast<Element*>(memory)},
        first_(place_.first + 16 * Shape::row_blocks * warp_index()) {}

  GPU_DEVICE void run() {
    start_load_metric<Width, Shape::threads>(metric_, in_, place_.head, 0);
    Sum p[Shape::row_blocks][Width / 8];
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      clear(p[block]);
      add_rows<Format>(p[block], projection_of(in_), in_, place_, first_ + 16 * block, 0);
    }
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      if (projection_.normalised) normalise(p[block]);
      if (projection_.p.data != nullptr) store_rows(p[block], projection_.p, block);
    }
    finish_loads();
    if (in_.form == MetricForm::dense) multiply_by_metric(p);
    if (in_.form != MetricForm::diagonal) return;
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      scale_columns(p[block], metric_);
      store_rows(p[block], projection_.q, block);
    }
  }

 private:
  GPU_DEVICE void normalise(Sum (&x)[Width / 8]) const {
    constexpr int groups = projection_column_groups<Width>, count = Width / 8 / groups;
    float squares[2] = {0, 0};
    add_squares<0, count>(squares, x);
    if constexpr (groups == 2) add_squares<count, count>(squares, x);
    const float factor[2] = {norm_factor(projection_, squares[0]), norm_factor(projection_, squares[1])};
    for_each_pair(x, [&](int row, int column, float* values) {
      GPU_UNROLL
      for (int e = 0; e < 2; ++e)
        values[e] = rounded<Format>(values[e] * factor[row / 8] * gain_at(projection_, column + e));
    });
  }

  GPU_DEVICE void multiply_by_metric(const Sum (&p)[Shape::row_blocks][Width / 8]) const {
    Left left[Shape::row_blocks][Width / Format::depth];
    Sum q[Shape::row_blocks][Width / 8];
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      to_left<Format>(left[block], p[block]);
      clear(q[block]);
    }
    multiply(q, left, metric_, 0);
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) store_rows(q[block], projection_.q, block);
  }

  GPU_DEVICE void store_rows(Sum (&rows)[Width / 8], const MetricRows& to, int block) const {
    store<Format>(rows, static_cast<Element*>(to.data), to.strides, in_, in_.queries, place_, first_ + 16 * block);
  }

  const MetricProjection& projection_;
  const MetricInputs& in_;
  Place place_;
  Tile<Format, Shape::ld> metric_;
  std::int64_t first_;  // token of this warp
};

template <class Format, int Width>
GPU_KERNEL((ProjectShape<Format, Width>::threads))
metric_project_kernel(const MetricProjection projection) {
  GPU_SHARED_MEMORY(memory);
  Project<Format, Width>(projection, memory).run();
}

constexpr int projection_tile_rows = 64;  // tokens that one step of backward takes

// Rows of k numbers that backward sums over all tokens of a head: those of dM, then dgain.
GPU_ANYWHERE int metric_sum_rows(const MetricProjectionBackward& backward) {
  return backward.dmetric == nullptr ? 0 : backward.forward.in.width;
}
GPU_ANYWHERE int sum_rows(const MetricProjectionBackward& backward) {
  return metric_sum_rows(backward) + (backward.dgain == nullptr ? 0 : 1);
}

template <class Format, int Width>
struct ProjectionGradientShape {
  // A warp has 16 rows of a tile and a group of its columns, and up to 16 rows of dM.
  static constexpr int row_groups = 4, column_groups = projection_column_groups<Width>;
  static constexpr int warps = row_groups * column_groups, threads = warps * gpu::warp_size;
  static constexpr int rows = 16 * row_groups, columns = Width / column_groups;
  static_assert(rows == projection_tile_rows && Width <= 16 * warps);
  // In shared memory: M, a tile of dq and one of p, and per row the sums of each group of columns.
  static constexpr int ld = padded_row<Format, Width>;
  static constexpr int tile_bytes = (Width + 2 * rows) * ld * static_cast<int>(sizeof(typename Format::Element));
  static constexpr int shared_bytes = tile_bytes + (column_groups > 1 ? 2 * 4 * column_groups * rows : 0);
  static_assert(shared_bytes <= most_shared_bytes);
};

// dx of one head's tokens, of which a block has every parts-th tile, and its part of dM and dgain.
template <class Format, int Width>
class ProjectionGradient {
 public:
  using Shape = ProjectionGradientShape<Format, Width>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  static constexpr int blocks = Shape::columns / 8;  // of a warp's columns
  using Columns = Sum[blocks];

  GPU_DEVICE ProjectionGradient(const MetricProjectionBackward& backward, unsigned char* memory)
      : backward_(backward),
        projection_(backward.forward),
        in_(projection_.in),
        metric_{reinterpret_cast<Element*>(memory)},
        dq_{metric_.at(Width, 0)},
        p_{dq_.at(Shape::rows, 0)},
        row_sums_(reinterpret_cast<float*>(memory + Shape::tile_bytes)),
        row_(warp_index() % Shape::row_groups * 16),
        group_(warp_index() / Shape::row_groups),
        column_(group_ * Shape::columns) {}

  GPU_DEVICE void run() {
    const auto head = gpu::block_index() % in_.heads, part = gpu::block_index() / in_.heads;
    start_load_metric<Width, Shape::threads>(metric_, in_, head, 0);
    Sum dmetric[1][Width / 8];
    clear(dmetric[0]);
    float dgain[blocks][2] = {};
    const auto tiles = tile_count(in_.queries.tokens, Shape::rows);
    for (auto tile = part; tile < in_.batch * tiles; tile += backward_.parts) {
      add_tile(dmetric, dgain, {tile / tiles, head, tile % tiles * Shape::rows});
      gpu::sync_threads();  // before the next tile comes
    }
    auto* partial = backward_.partial + (part * in_.heads + head) * sum_rows(backward_) * in_.width;
    if (backward_.dmetric != nullptr) store_metric(dmetric[0], partial);
    if (backward_.dgain != nullptr) store_gain(dgain, partial + metric_sum_rows(backward_) * in_.width);
  }

 private:
  GPU_DEVICE void add_tile(Sum (&dmetric)[1][Width / 8], float (&dgain)[blocks][2], const Place& place) const {
    const auto &dq = backward_.dq, &dx = backward_.dx;
    start_load_tokens<Width, Shape::threads>(dq_, Shape::rows, dq.data, dq.strides, in_.queries.tokens, in_.width,
                                             place, place.first);
    const auto first = place.first + row_;
    Columns x, dp[1];
    clear(x);
    clear(dp[0]);
    add_rows<Format>(x, projection_of(in_), in_, place, first, column_);
    add_rows<Format>(dp[0], backward_.dk, in_, place, first, column_);
    if (backward_.dvalue.data == nullptr)
      add_rows<Format>(dp[0], backward_.dv, in_, place, first, column_);
    else
      copy_rows<Format, blocks>(backward_.dvalue, backward_.dv, in_, place, first, column_);
    finish_loads();
    add_through_metric(dp);
    if (projection_.normalised) go_back_through_norm(x, dp[0], dgain);
    store<Format>(dp[0], static_cast<Element*>(dx.data), dx.strides, in_, in_.queries, place, first, column_);
    if (backward_.dmetric != nullptr) add_to_metric(dmetric, x);
  }

  // dp += dq M^T.
  GPU_DEVICE void add_through_metric(Columns (&dp)[1]) const {
    if (in_.form == MetricForm::dense) {
      Left left[1][Width / Format::depth];
      load(left[0], dq_, row_);
      multiply_transposed(dp, left, metric_, column_);
      return;
    }
    const bool diagonal = in_.form == MetricForm::diagonal;
    for_each_pair(dp[0], [&](int row, int column, float* values) {
      GPU_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int c = column_ + column + e;
        values[e] += dq_.value(row_ + row, c) * (diagonal ? metric_.value(0, c) : 1.0f);
      }
    });
  }

  // dp becomes dx, and x p.
  GPU_DEVICE void go_back_through_norm(Columns& x, Columns& dp, float (&dgain)[blocks][2]) const {
    float squares[2] = {0, 0}, dots[2] = {0, 0};
    add_squares<0, blocks>(squares, x);
    for_each_entry(
        [&](int n, int e, int column) { dots[e / 2] += gain_at(projection_, column) * dp[n].r[e] * x[n].r[e]; });
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) dots[h] = sum_of_row(dots[h]);
    if constexpr (Shape::column_groups > 1) add_other_groups(squares, dots);
    float factor[2], slope[2];
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      factor[h] = norm_factor(projection_, squares[h]);
      slope[h] = factor[h] * factor[h] * dots[h] / static_cast<float>(in_.width);
    }
    for_each_entry([&](int n, int e, int column) {
      const float gain = gain_at(projection_, column), length_one = x[n].r[e] * factor[e / 2];
      dgain[n][e % 2] += dp[n].r[e] * length_one;
      dp[n].r[e] = factor[e / 2] * (gain * dp[n].r[e] - slope[e / 2] * x[n].r[e]);
      x[n].r[e] = rounded<Format>(length_one * gain);
    });
  }

  // Of rows whose columns several warps have.
  GPU_DEVICE void add_other_groups(float (&squares)[2], float (&dots)[2]) const {
    const auto at = [&](int group, int h) {
      return row_sums_ + 2 * (group * Shape::rows + row_ + lane_index() / 4 + 8 * h);
    };
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (lane_index() % 4 != 0) continue;
      at(group_, h)[0] = squares[h];
      at(group_, h)[1] = dots[h];
    }
    gpu::sync_threads();
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      squares[h] = at(0, h)[0] + at(1, h)[0];
      dots[h] = at(0, h)[1] + at(1, h)[1];
    }
  }

  // dM += p^T dq over the tile.
  GPU_DEVICE void add_to_metric(Sum (&dmetric)[1][Width / 8], Columns& p) const {
    for_each_pair(p, [&](int row, int column, const float* values) {
      store_pair<Format>(p_.at(row_ + row, column_ + column), values[0], values[1]);
    });
    gpu::sync_threads();
    const int first = 16 * warp_index();
    if (first >= Width) return;  // the same for a whole warp
    GPU_UNROLL
    for (int k = 0; k < Shape::rows; k += Format::depth) {
      Left left[1][1];
      load_transposed(left[0][0], p_, k, first);
      multiply(dmetric, left, dq_, k);
    }
  }

  GPU_DEVICE void store_metric(Sum (&dmetric)[Width / 8], float* partial) const {
    const int first = 16 * warp_index();
    if (first >= Width) return;
    for_each_pair(dmetric, [&](int row, int column, const float* values) {
      if (!gpu::within(first + row < in_.width) || !gpu::within(column < in_.width)) return;
      auto* target = partial + (first + row) * in_.width + column;
      target[0] = values[0];
      target[1] = values[1];
    });
  }

  // Over the rows of a warp, then over the warps, whose sums take the place of p.
  GPU_DEVICE void store_gain(float (&dgain)[blocks][2], float* partial) const {
    auto* sums = reinterpret_cast<float*>(p_.data);
    GPU_UNROLL
    for (int n = 0; n < blocks; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 2; ++e) {
        float sum = dgain[n][e];
        for (int other = 4; other < gpu::warp_size; other *= 2) sum += gpu::shuffle_xor(sum, other);
        if (lane_index() < 4) sums[row_ / 16 * Width + column_ + 8 * n + 2 * lane_index() + e] = sum;
      }
    }
    gpu::sync_threads();
    for (int column = gpu::thread_index(); gpu::within(column < in_.width); column += Shape::threads) {
      float sum = 0;
      for (int group = 0; group < Shape::row_groups; ++group) sum += sums[group * Width + column];
      partial[column] = sum;
    }
  }

  // use(n, e, column) for the entries r[e] of block n that this lane has of its columns.
  template <class Use>
  GPU_DEVICE void for_each_entry(Use use) const {
    GPU_UNROLL
    for (int n = 0; n < blocks; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) use(n, e, column_ + 8 * n + 2 * (lane_index() % 4) + e % 2);
    }
  }

  const MetricProjectionBackward& backward_;
  const MetricProjection& projection_;
  const MetricInputs& in_;
  Tokens metric_, dq_, p_;
  float* row_sums_;
  int row_, group_, column_;  // of this warp: its first row of a tile; its group of columns, and the first of these
};

// Block x: head x % heads, part x / heads.
template <class Format, int Width>
GPU_KERNEL((ProjectionGradientShape<Format, Width>::threads))
metric_project_gradient_kernel(const MetricProjectionBackward backward) {
  GPU_SHARED_MEMORY(memory);
  ProjectionGradient<Format, Width>(backward, memory).run();
}

// One thread per entry of dM and dgain.
template <int Threads>
GPU_KERNEL(Threads)
metric_project_sum_kernel(const MetricProjectionBackward backward) {
  const auto& in = backward.forward.in;
  const std::int64_t rows = sum_rows(backward), metric_rows_of_head = metric_sum_rows(backward);
  const auto size = in.heads * rows * in.width;
  const auto at = gpu::block_index() * Threads + gpu::thread_index();
  if (!gpu::within(at < size)) return;
  float sum = 0;
  for (std::int64_t part = 0; part < backward.parts; ++part) sum += backward.partial[part * size + at];
  const auto head = at / (rows * in.width), row = at / in.width % rows, column = at % in.width;
  auto* target = row < metric_rows_of_head ? backward.dmetric + (head * in.width + row) * in.width
                                           : backward.dgain + head * in.width;
  target[column] = sum;
}

}  // namespace metaformer::cuda
