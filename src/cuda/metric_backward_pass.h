#pragma once
// All pairs of queries and keys, once: a block owns a tile of keys and goes over the tiles of queries. What its tokens
// contribute to dp as keys and values stays in registers. What it contributes to dq of a tile of queries is added in
// global memory, by the blocks in the order of their keys: each waits for its turn. Weights and their gradients pass
// through shared memory at most.

#include "cuda/metric_backward.h"
#include "cuda/metric_store.h"

namespace metaformer::cuda {

template <class Format, int Width>
struct PassShape {
  using Element = typename Format::Element;
  static constexpr int warps = 4, threads = warps * gpu::warp_size;
  static constexpr int rows = 16 * warps;  // keys that a block owns
  static constexpr bool narrow = sizeof(Element) == 2;
  // Queries of a tile: as many as registers allow, those of split operands the fewest.
  static constexpr bool wide = !narrow && (Width > 96 || (is_split<Format> && Width > 32));
  static constexpr int queries = narrow && Width <= 64 ? 64 : wide ? 16 : 32;
  // Whether the keys stay in registers as operands, too.
  static constexpr bool keeps_rows = narrow || Width <= (is_split<Format> ? 16 : 48);

  // In shared memory: the keys, two tiles of q, two of dt, and dS^T of a tile.
  static constexpr int ld = padded_row<Format, Width>, slope_ld = padded_row<Format, queries>;
  static constexpr int tile_bytes = (rows + 4 * queries) * ld * static_cast<int>(sizeof(Element));
  static constexpr int slope_bytes = rows * slope_ld * static_cast<int>(sizeof(Element));
  static constexpr int shared_bytes = tile_bytes + slope_bytes + 2 * queries * 12;  // segments, log2 sums, deltas
  static_assert(shared_bytes <= most_shared_bytes);

  // A warp computes 16 rows of a tile's dq, and so many of its columns.
  static constexpr int row_groups = queries / 16, column_groups = warps / row_groups;
  static constexpr int columns = (Width / 16 + column_groups - 1) / column_groups * 16;
};

template <class Format, int Width>
class BackwardPass {
 public:
  using Shape = PassShape<Format, Width>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  using Slopes = Tile<Format, Shape::slope_ld>;
  static constexpr int kept_steps = Shape::keeps_rows ? Width / Format::depth : 1;

  GPU_DEVICE BackwardPass(const MetricBackward& backward, unsigned char* memory)
      : backward_(backward),
        in_(backward.in),
        rule_(in_),
        place_(first_tile_first(in_, Shape::rows)),
        keys_{reinterpret_cast<Element*>(memory)},
        queries_{keys_.at(Shape::rows, 0)},
        slopes_{reinterpret_cast<Element*>(memory + Shape::tile_bytes)},
        segment_(reinterpret_cast<std::int32_t*>(memory + Shape::tile_bytes + Shape::slope_bytes)),
        log2_sum_(reinterpret_cast<float*>(segment_ + 2 * Shape::queries)),
        delta_(log2_sum_ + 2 * Shape::queries),
        row_(16 * warp_index()),
        key_(place_.first + row_ + lane_index() / 4) {}

  GPU_DEVICE void run() {
    start_load_p<Width, Shape::threads>(keys_, Shape::rows, in_, in_.keys, place_, place_.first);
    finish_loads();
    Left p[1][kept_steps];
    if constexpr (Shape::keeps_rows) load(p[0], keys_, row_);
    Sum dkey[1][Width / 8];
    clear(dkey[0]);
    float column_sum[2] = {0, 0};
    const std::int64_t first = first_query(), end = in_.queries.tokens;
    start_queries(first);
    for (auto query = first; query < end; query += Shape::queries) {
      finish_loads();
      if (query > first) end_turn(query - Shape::queries);
      if (query + Shape::queries < end) start_queries(query + Shape::queries);
      add_queries(query, p, column_sum, dkey);
      add_to_dq(query);
    }
    gpu::sync_threads();  // what this block added is there
    end_turn((end - 1) / Shape::queries * Shape::queries);
    finish(dkey[0], column_sum);
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

  // Adds to dkey, and leaves dS^T in shared memory.
  GPU_DEVICE void add_queries(std::int64_t query, const Left (&p)[1][kept_steps], float (&column_sum)[2],
                              Sum (&dkey)[1][Width / 8]) {
    const int first = buffer_row<Shape::queries>(query), dt = 2 * Shape::queries + first;
    Sum weight[1][Shape::queries / 8], gradient[1][Shape::queries / 8];
    clear(weight[0]);
    clear(gradient[0]);
    if constexpr (Shape::keeps_rows) {
      multiply_transposed(weight, p, queries_, first);
      multiply_transposed(gradient, p, queries_, dt);
    } else {
      multiply_transposed(weight, keys_, row_, Width, queries_, first);
      multiply_transposed(gradient, keys_, row_, Width, queries_, dt);
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
    multiply(dkey, operand, queries_, dt);
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
    const DropoutOf<Drops> dropout(in_);
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
                      Drops ? dropout.at(gpu::counter(dropout.place(place_, query + column, key))) : 1.0f);
          column_sum[h] += gradient[n].r[e];
        }
      }
    }
  }

  // Scaled dS p, of the 16 queries and the columns that are this warp's.
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
    wait_for_turn(query);
    add_in_memory(query + row, column, dq);
    if (in_.distance && column == 0) add_row_sums(query + row + lane_index() / 4, row_sum);
  }

  // Blocks add to a tile of dq in the order of their keys. All before this one have begun: they have lower numbers.
  GPU_DEVICE unsigned* turn_of(std::int64_t query) const { return turn_at(backward_, place_, query / Shape::queries); }
  GPU_DEVICE unsigned turn() const { return static_cast<unsigned>(place_.first / Shape::rows); }
  GPU_DEVICE void wait_for_turn(std::int64_t query) const {
    if (turn() == 0) return;
    if (gpu::thread_index() == 0) gpu::wait_for(turn_of(query), turn());
    gpu::sync_threads();
  }
  // After a barrier behind what was added.
  GPU_DEVICE void end_turn(std::int64_t query) const {
    if (gpu::thread_index() == 0) gpu::announce(turn_of(query), turn() + 1);
  }

  // All is loaded before the first store: what follows a store would wait for memory once more.
  GPU_DEVICE void add_in_memory(std::int64_t query, int first_column, const Sum (&dq)[Shape::columns / 8]) const {
    if (!gpu::within(query < in_.queries.tokens)) return;  // the same for a whole warp
    float* at = dq_sum_at<Width>(backward_, place_, query) + first_column / 8 * dq_sum_step;
    float sum[Shape::columns / 8][4];
    GPU_UNROLL
    for (int n = 0; n < Shape::columns / 8; ++n) {
      for (float& value : sum[n]) value = 0;
      if (turn() > 0 && first_column + 8 * n < Width) gpu::load_handed_on(sum[n], at + n * dq_sum_step);
    }
    GPU_UNROLL
    for (int n = 0; n < Shape::columns / 8; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) sum[n][e] = gpu::fused_multiply_add(rule_.gradient, dq[n].r[e], sum[n][e]);
      if (first_column + 8 * n < Width) gpu::store_handed_on(at + n * dq_sum_step, sum[n]);
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

  GPU_DEVICE void finish(Sum (&dkey)[Width / 8], const float (&column_sum)[2]) const {
    for_each_pair(dkey, [&](int row, int column, const float* values) {
      const auto token = place_.first + row_ + row;
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
  Tokens keys_, queries_;  // queries: two tiles of q, then two of dt
  Slopes slopes_;
  std::int32_t* segment_;
  float *log2_sum_, *delta_;
  int row_;           // of this warp's 16 keys
  std::int64_t key_;  // this lane's first; its second is 8 further
};

template <class Format, int Width>
GPU_KERNEL((PassShape<Format, Width>::threads))
metric_pass_kernel(const MetricBackward backward) {
  GPU_SHARED_MEMORY(memory);
  BackwardPass<Format, Width>(backward, memory).run();
}

}  // namespace metaformer::cuda
