#pragma once
// Backward of metric attention in a short context: a block has all tokens of a head, and everything that they need in
// shared memory. The formulas are those of metric_backward_pass.h, without distances and separate keys.
//
// A warp has 32 tokens. First they are queries: dq stays in registers. Then they are keys, whose dp begins as dq M^T.
// Scores are computed twice, so that no warp waits for another between the loads and the gradient of M: with a causal
// mask the first tokens see few keys and are seen by many queries, and the last ones the other way round, so that all
// warps have nearly as much to do. One pass over the pairs would hand dS on at every tile.

#include "cuda/metric_backward_pass.h"

namespace metaformer::cuda {

template <class Format, int Width, bool HasValues, int Warps>
struct ShortShape {
  static constexpr int warps = Warps, threads = warps * gpu::warp_size;
  static constexpr int row_blocks = 2, warp_rows = 16 * row_blocks;  // tokens of a warp
  static constexpr int rows = warps * warp_rows;
  static constexpr int columns = Width > 32 ? 16 : 32;  // tokens of a tile of the other side, as registers allow
  // Blocks of 16 keys at a time: they share the reads of q and dt where registers suffice for their sums.
  static constexpr int key_blocks = HasValues && Width > 32 ? 1 : row_blocks, key_groups = row_blocks / key_blocks;
  // In shared memory: p, q and dt of all tokens, their values, and the metric; per token segment, log2 sum and delta.
  static constexpr int ld = padded_row<Format, Width>;
  static constexpr int tile_rows = (HasValues ? 4 : 3) * rows + Width;
  static constexpr int tile_bytes = tile_rows * ld * static_cast<int>(sizeof(typename Format::Element));
  static constexpr int shared_bytes = tile_bytes + 12 * rows;
  static_assert(Format::depth == 16 && metric_rows<Format, Width> == Width && warp_rows % columns == 0);
};

template <class Format, int Width, bool HasValues, int Warps>
class ShortBackward {
 public:
  using Shape = ShortShape<Format, Width, HasValues, Warps>;
  using Element = typename Format::Element;
  using Tokens = Tile<Format, Shape::ld>;
  static constexpr int steps = Width / Format::depth, columns = Shape::columns / 8;
  using RowsOfKeys = Left[Shape::key_blocks][steps];

  GPU_DEVICE ShortBackward(const MetricBackward& backward, unsigned char* memory, const Place& place)
      : backward_(backward),
        in_(backward.in),
        rule_(in_),
        place_(place),
        tokens_(static_cast<int>(in_.queries.tokens)),
        p_{reinterpret_cast<Element*>(memory)},
        q_{p_.at(Shape::rows, 0)},
        dt_{q_.at(Shape::rows, 0)},
        values_{HasValues ? dt_.at(Shape::rows, 0) : p_.data},
        metric_{p_.at(Shape::tile_rows - Width, 0)},
        segment_(reinterpret_cast<std::int32_t*>(memory + Shape::tile_bytes)),
        log2_sum_(reinterpret_cast<float*>(segment_ + Shape::rows)),
        delta_(log2_sum_ + Shape::rows),
        row_(Shape::warp_rows * warp_index()) {}

  // parts: of the gradient of the metric; the first sequences replace what is there, the others add to it.
  GPU_DEVICE void run(std::int64_t parts) {
    load_tokens();
    RowsOfKeys dq[Shape::key_groups];
    if (row_ < tokens_) {
      as_queries(dq);
      // One copy of the code: the addresses of a second one would take registers.
      GPU_DO_NOT_UNROLL
      for (int group = 0; group < Shape::key_groups; ++group) {
        as_keys(dq[0], row_ + 16 * Shape::key_blocks * group);
        if constexpr (Shape::key_groups == 2) exchange_groups(dq);
      }
    }
    if (backward_.dmetric == nullptr) return;
    gpu::sync_threads();  // all of q has been read: dq takes its place
    GPU_UNROLL
    for (int block = 0; row_ < tokens_ && block < Shape::row_blocks; ++block)
      store(q_, row_ + 16 * block, dq[block / Shape::key_blocks][block % Shape::key_blocks]);
    gpu::sync_threads();
    add_to_metric(place_.batch < parts);
  }

 private:
  // With q = p M and delta; t lies where q will be.
  GPU_DEVICE void load_tokens() {
    const auto& side = in_.queries;
    const auto load_from = [&](const Tokens& tile, const void* data, const MetricStrides& strides) {
      start_load_tokens<Width, Shape::threads>(tile, Shape::rows, data, strides, side.tokens, in_.width, place_, 0);
    };
    load_from(p_, side.p, side.p_strides);
    load_from(q_, backward_.t, backward_.t_strides);
    load_from(dt_, backward_.dt, backward_.dt_strides);
    if constexpr (HasValues) load_from(values_, in_.values, in_.value_strides);
    const int token = gpu::thread_index();  // as many as threads
    segment_[token] = segment_of(side, place_.batch, token);
    log2_sum_[token] = gpu::within(token < tokens_) ? backward_.log2_sum[place_.row(in_, side, token)] : INFINITY;
    Sum q[Shape::row_blocks][Width / 8];
    transform<Shape::threads>(q, p_, row_, metric_, in_, place_.head);
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      make_delta(row_ + 16 * block);
      Left rounded[steps];
      to_left<Format>(rounded, q[block]);
      store(q_, row_ + 16 * block, rounded);
    }
    gpu::sync_threads();  // all of q is there
  }

  GPU_DEVICE void make_delta(int row) const {
    float sum[2] = {0, 0};
    GPU_UNROLL
    for (int k = 0; k < steps; ++k) {
      Left t, dt;
      load(t, q_, row, k * Format::depth);
      load(dt, dt_, row, k * Format::depth);
      add_products<Format>(sum, t, dt);
    }
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float delta = sum_of_row(sum[h]);
      if (lane_index() % 4 == 0) delta_[row + lane_index() / 4 + 8 * h] = delta;
    }
  }

  // dq of this warp's tokens, rounded.
  GPU_DEVICE void as_queries(RowsOfKeys (&dq)[Shape::key_groups]) const {
    Left q[Shape::row_blocks][steps], dt[Shape::row_blocks][steps];
    Sum sum[Shape::row_blocks][Width / 8];
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      load(q[block], q_, row_ + 16 * block);
      load(dt[block], dt_, row_ + 16 * block);
      clear(sum[block]);
    }
    const int end = in_.causal ? row_ + Shape::warp_rows : tokens_;
    GPU_DO_NOT_UNROLL
    for (int key = 0; key < end; key += Shape::columns) {
      Sum weight[Shape::row_blocks][columns], slope[Shape::row_blocks][columns];
      Left operand[Shape::row_blocks][Shape::columns / Format::depth];
      score(weight, slope, q, p_, dt, values_, key);
      weigh<false>(weight, slope, row_, key, is_plain(row_, key, Shape::columns));
      GPU_UNROLL
      for (int block = 0; block < Shape::row_blocks; ++block) to_left<Format>(operand[block], slope[block]);
      multiply(sum, operand, p_, key);
    }
    GPU_UNROLL
    for (int block = 0; block < Shape::row_blocks; ++block) {
      scale(sum[block]);
      to_left<Format>(dq[block / Shape::key_blocks][block % Shape::key_blocks], sum[block]);
    }
  }

  // So that the next group is always the first: registers have no index.
  GPU_DEVICE void exchange_groups(RowsOfKeys (&dq)[2]) const {
    GPU_UNROLL
    for (int k = 0; k < steps; ++k) {
      const auto other = dq[0][0][k];
      dq[0][0][k] = dq[1][0][k];
      dq[1][0][k] = other;
    }
  }

  // dp, and the gradient of values, of tokens from `row` on, whose dq is given.
  GPU_DEVICE void as_keys(const RowsOfKeys& dq, int row) const {
    RowsOfKeys p, values;
    Sum dp[Shape::key_blocks][Width / 8], dvalue[Shape::key_blocks][HasValues ? Width / 8 : 1];
    GPU_UNROLL
    for (int block = 0; block < Shape::key_blocks; ++block) {
      load(p[block], p_, row + 16 * block);
      if constexpr (HasValues) load(values[block], values_, row + 16 * block);
      clear(dvalue[block]);
    }
    through_metric(dp, dq);
    GPU_DO_NOT_UNROLL
    for (int query = in_.causal ? row / Shape::columns * Shape::columns : 0; query < tokens_; query += Shape::columns) {
      Sum weight[Shape::key_blocks][columns], slope[Shape::key_blocks][columns];
      Left operand[Shape::key_blocks][Shape::columns / Format::depth];
      score(weight, slope, p, q_, HasValues ? values : p, dt_, query);
      weigh<true>(weight, slope, row, query, is_plain(query, row, 16 * Shape::key_blocks));
      GPU_UNROLL
      for (int block = 0; block < Shape::key_blocks; ++block) to_left<Format>(operand[block], weight[block]);
      if constexpr (HasValues) {
        multiply(dvalue, operand, dt_, query);
      } else {
        multiply(dp, operand, dt_, query);
      }
      GPU_UNROLL
      for (int block = 0; block < Shape::key_blocks; ++block) {
        scale(slope[block]);
        to_left<Format>(operand[block], slope[block]);
      }
      multiply(dp, operand, q_, query);
    }
    const auto& gradient = backward_.queries;
    GPU_UNROLL
    for (int block = 0; block < Shape::key_blocks; ++block) {
      const int first = row + 16 * block;
      store<Format>(dp[block], static_cast<Element*>(gradient.dp), gradient.dp_strides, in_, in_.queries, place_,
                    first);
      if constexpr (HasValues)
        store<Format>(dvalue[block], static_cast<Element*>(backward_.dvalues), backward_.dvalue_strides, in_,
                      in_.queries, place_, first);
    }
  }

  // dp = dq M^T.
  GPU_DEVICE void through_metric(Sum (&dp)[Shape::key_blocks][Width / 8], const RowsOfKeys& dq) const {
    GPU_UNROLL
    for (int block = 0; block < Shape::key_blocks; ++block) {
      if (in_.form == MetricForm::dense) {
        clear(dp[block]);
        continue;
      }
      from_left<Format>(dp[block], dq[block]);
      if (in_.form == MetricForm::diagonal) scale_columns(dp[block], metric_);
    }
    if (in_.form == MetricForm::dense) multiply_transposed(dp, dq, metric_, 0);
  }

  template <int Count>
  GPU_DEVICE void scale(Sum (&sum)[Count]) const {
    GPU_UNROLL
    for (int n = 0; n < Count; ++n) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) sum[n].r[e] *= rule_.gradient;
    }
  }

  // The scores of rows and columns, before their scale, and the gradients of the weights before dropout.
  template <int Blocks>
  GPU_DEVICE void score(Sum (&weight)[Blocks][columns], Sum (&slope)[Blocks][columns],
                        const Left (&rows)[Blocks][steps], const Tokens& others,
                        const Left (&value_rows)[Blocks][steps], const Tokens& value_others, int first) const {
    GPU_UNROLL
    for (int block = 0; block < Blocks; ++block) {
      clear(weight[block]);
      clear(slope[block]);
    }
    multiply_transposed(weight, rows, others, first);
    multiply_transposed(slope, value_rows, value_others, first);
  }

  // Whether every query of the tile from `query` on sees each of `keys` from `key` on. Queries behind the last token
  // count nowhere: their log2 sum is infinite.
  GPU_DEVICE bool is_plain(int query, int key, int keys) const {
    return !has_segments(in_) && key + keys <= tokens_ && (!in_.causal || key + keys <= query + 1);
  }

  template <bool KeysInRows, int Blocks>
  GPU_DEVICE void weigh(Sum (&weight)[Blocks][columns], Sum (&slope)[Blocks][columns], int row, int column,
                        bool plain) const {
    if (drops(in_)) {
      weigh<KeysInRows, true, true>(weight, slope, row, column);
    } else if (plain) {
      weigh<KeysInRows, false, false>(weight, slope, row, column);
    } else {
      weigh<KeysInRows, true, false>(weight, slope, row, column);
    }
  }

  // m P in place of scores, and dS in place of dt p^T, of the blocks of rows from `row` on and the columns from
  // `column` on.
  template <bool KeysInRows, bool Masked, bool Drops, int Blocks>
  GPU_DEVICE void weigh(Sum (&weight)[Blocks][columns], Sum (&slope)[Blocks][columns], int row, int column) const {
    row += lane_index() / 4;
    column += 2 * (lane_index() % 4);
    const DropoutOf<Drops> dropout(in_, place_, KeysInRows ? column : row, KeysInRows ? row : column);
    GPU_UNROLL
    for (int block = 0; block < Blocks; ++block) {
      GPU_UNROLL
      for (int n = 0; n < columns; ++n) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int down = 16 * block + 8 * (e / 2), right = 8 * n + e % 2;
          const int query = KeysInRows ? column + right : row + down, key = KeysInRows ? row + down : column + right;
          const bool visible = !Masked || gpu::within(sees(in_, segment_[query], segment_[key], key - query));
          const int further = KeysInRows ? (right << query_shift) + down : (down << query_shift) + right;
          rule_.template weigh</*Distances=*/false>(weight[block][n].r[e], slope[block][n].r[e], visible,
                                                    /*diagonal=*/false, /*half_bias=*/0, log2_sum_[query],
                                                    delta_[query], Drops ? dropout.at(gpu::counter(further)) : 1.0f);
        }
      }
    }
  }

  // dM = p^T dq of these tokens. A warp has 16 rows of M, and so many of its columns that all have a part.
  GPU_DEVICE void add_to_metric(bool first) const {
    constexpr int row_groups = Width / 16, width = Width > 32 ? 32 : 16;
    GPU_DO_NOT_UNROLL
    for (int part = warp_index(); part < row_groups * (Width / width); part += Shape::warps) {
      const int row = part % row_groups * 16, column = part / row_groups * width;
      const Tokens dq{q_.at(0, column)};
      Sum sum[1][width / 8];
      clear(sum[0]);
      GPU_DO_NOT_UNROLL
      for (int token = 0; token < tokens_; token += Format::depth) {
        Left left[1][1];
        load_transposed(left[0][0], p_, token, row);
        multiply(sum, left, dq, token);
      }
      for_each_pair(sum[0], [&](int r, int c, const float* values) {
        if (!gpu::within(row + r < in_.width) || !gpu::within(column + c < in_.width)) return;
        float* at = backward_.partial + (gpu::block_index() * in_.width + row + r) * in_.width + column + c;
        at[0] = first ? values[0] : at[0] + values[0];
        at[1] = first ? values[1] : at[1] + values[1];
      });
    }
  }

  const MetricBackward& backward_;
  const MetricInputs& in_;
  ScoreRule rule_;
  Place place_;
  int tokens_;
  Tokens p_, q_, dt_, values_, metric_;  // values are p unless given
  std::int32_t* segment_;
  float *log2_sum_, *delta_;
  int row_;  // of this warp: its first token
};

// Block x: head x % heads, and every parts-th sequence from x / heads on.
template <class Format, int Width, bool HasValues, int Warps>
GPU_KERNEL((ShortShape<Format, Width, HasValues, Warps>::threads))
metric_short_backward_kernel(const MetricBackward backward, const std::int64_t parts) {
  GPU_SHARED_MEMORY(memory);
  const auto& in = backward.in;
  const auto head = gpu::block_index() % in.heads, part = gpu::block_index() / in.heads;
  for (auto batch = part; batch < in.batch; batch += parts) {
    if (batch > part) gpu::sync_threads();  // the tokens before have been read
    ShortBackward<Format, Width, HasValues, Warps>(backward, memory, {batch, head, 0}).run(parts);
  }
}

}  // namespace metaformer::cuda
