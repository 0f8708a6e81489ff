#pragma once
// What the metric kernels share: which part of the work a block does, tiles of tokens in shared memory, who sees whom,
// and how results are stored.

#include "base/dropout_places.h"
#include "cuda/fragments.h"
#include "cuda/metric_attention.h"
#include "cuda/random_bits.h"

namespace metaformer::cuda {

constexpr float log2_e = 1.44269504088896341f;

constexpr int gradient_tile_rows = 32;  // tokens that one step of the metric gradient takes
constexpr int turn_rows = 16;           // queries of the smallest tile that blocks take turns at
constexpr int turn_warps = 4;           // of a block of backward's pass, each of which has its own turns
constexpr int dq_sum_rows = 16;         // queries whose dq lies together in MetricBackward::dq_sum: those of a warp

// The width that the kernel for heads of `width` is compiled for. With values of their own there are fewer: compiling
// takes long.
constexpr int compiled_width(int width, bool has_values) {
  const int step = has_values ? 32 : 16;
  return width <= 64 ? (width + step - 1) / step * step : width <= 96 ? 96 : 128;
}

// One tile of tokens of one head.
struct Place {
  std::int64_t batch, head;
  std::int64_t first;  // token

  GPU_DEVICE std::int64_t offset(const MetricStrides& strides, std::int64_t token) const {
    return batch * strides.batch + head * strides.head + token * strides.token;
  }
  // Into a contiguous [b, n, tokens].
  GPU_DEVICE std::int64_t row(const MetricInputs& in, const MetricSide& side, std::int64_t token) const {
    return (batch * in.heads + head) * side.tokens + token;
  }
};

// Elements between rows of a tile in shared memory: no two of eight rows start in the same banks.
template <class Format, int Width>
constexpr int padded_row = Width + static_cast<int>(16 / sizeof(typename Format::Element));

// What GPUs of all supported architectures give a block; those of 8.6, 8.9 and 12.0 have no more.
constexpr int most_shared_bytes = 101376;

// Rows of a dense metric that are in shared memory at once.
template <class Format, int Width>
constexpr int metric_rows = sizeof(typename Format::Element) == 2 || Width <= 64 ? Width : 32;

GPU_ANYWHERE std::int64_t tile_count(std::int64_t tokens, int rows) { return (tokens + rows - 1) / rows; }

// Block 0 gets the last tile: with a causal mask the longest work comes first.
GPU_DEVICE Place last_tile_first(const MetricInputs& in, const MetricSide& side, int rows) {
  const auto pairs = in.batch * in.heads, tiles = tile_count(side.tokens, rows);
  const auto pair = gpu::block_index() % pairs;
  return {pair / in.heads, pair % in.heads, (tiles - 1 - gpu::block_index() / pairs) * rows};
}

// Block 0 gets the first tile: with a causal mask it is the key that most queries see. Divides in the type of `block`.
template <class Number>
GPU_DEVICE Place first_tile_first(const MetricInputs& in, int rows, Number block) {
  const auto pairs = static_cast<Number>(in.batch * in.heads), heads = static_cast<Number>(in.heads);
  const auto pair = block % pairs;
  return {pair / heads, pair % heads, static_cast<std::int64_t>(block / pairs) * rows};
}
GPU_DEVICE Place first_tile_first(const MetricInputs& in, int rows) {
  return first_tile_first(in, rows, gpu::block_index());
}

// 16-byte copies need every row to start at a multiple of 16 bytes.
template <class Element>
GPU_DEVICE bool is_aligned(const Element* data, std::int64_t stride) {
  constexpr auto per_copy = static_cast<std::int64_t>(16 / sizeof(Element));
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % per_copy == 0;
}

// Starts to load `rows` rows, of which the first `valid` exist, `stride` apart in `source`; zeros elsewhere, up to
// `Width` columns. The caller commits and waits.
template <int Width, int Threads, class Format, int Ld>
GPU_DEVICE void start_load(const Tile<Format, Ld>& tile, int rows, const typename Format::Element* source,
                           std::int64_t stride, std::int64_t valid, int width) {
  using Element = typename Format::Element;
  constexpr int per_copy = 16 / sizeof(Element), copies = Width / per_copy;
  const bool aligned = gpu::aligned(is_aligned(source, stride));
  for (int i = gpu::thread_index(); i < rows * copies; i += Threads) {
    const int row = i / copies, column = i % copies * per_copy;
    const bool exists = gpu::within(row < valid) && gpu::within(column < width);
    const auto* from = exists ? source + row * stride + column : source;
    if (aligned) {
      gpu::copy_async_16(tile.at(row, column), from, exists);
    } else {
      GPU_UNROLL
      for (int e = 0; e < per_copy; ++e) *tile.at(row, column + e) = exists ? from[e] : Element(0);
    }
  }
}

// The tokens of a [b, n, c, k] tensor from `token` on.
template <class Format>
GPU_DEVICE const typename Format::Element* tokens_at(const void* data, const MetricStrides& strides, const Place& place,
                                                     std::int64_t token) {
  return static_cast<const typename Format::Element*>(data) + place.offset(strides, token);
}

// Starts to load `rows` tokens from `first` on; zeros behind the last one.
template <int Width, int Threads, class Format, int Ld>
GPU_DEVICE void start_load_tokens(const Tile<Format, Ld>& tile, int rows, const void* data,
                                  const MetricStrides& strides, std::int64_t tokens, int width, const Place& place,
                                  std::int64_t first) {
  start_load<Width, Threads>(tile, rows, tokens_at<Format>(data, strides, place, first), strides.token, tokens - first,
                             width);
}
template <int Width, int Threads, class Format, int Ld>
GPU_DEVICE void start_load_p(const Tile<Format, Ld>& tile, int rows, const MetricInputs& in, const MetricSide& side,
                             const Place& place, std::int64_t first) {
  start_load_tokens<Width, Threads>(tile, rows, side.p, side.p_strides, side.tokens, in.width, place, first);
}

GPU_DEVICE void finish_loads() {
  gpu::commit_copies();
  gpu::wait_copies<0>();
  gpu::sync_threads();
}

// The metric of a head: metric_rows rows from `first` on of a dense one, the one row of a diagonal one.
template <int Width, int Threads, class Format, int Ld>
GPU_DEVICE void start_load_metric(const Tile<Format, Ld>& tile, const MetricInputs& in, std::int64_t head, int first) {
  const auto* metric = static_cast<const typename Format::Element*>(in.metric);
  if (in.form == MetricForm::dense)
    start_load<Width, Threads>(tile, metric_rows<Format, Width>, metric + (head * in.width + first) * in.width,
                               in.width, in.width - first, in.width);
  if (in.form == MetricForm::diagonal)
    start_load<Width, Threads>(tile, 1, metric + head * in.width, in.width, 1, in.width);
}

// sum = tile, in the layout of results; 16 rows from `row`.
template <class Format, int Count, int Ld>
GPU_DEVICE void load(Sum (&sum)[Count], const Tile<Format, Ld>& tile, int row) {
  const int r = row + lane_index() / 4;
  GPU_UNROLL
  for (int n = 0; n < Count; ++n) {
    const int c = 8 * n + 2 * (lane_index() % 4);
    sum[n] = {{tile.value(r, c), tile.value(r, c + 1), tile.value(r + 8, c), tile.value(r + 8, c + 1)}};
  }
}

// Multiplies every column by its entry of the tile's first row.
template <class Format, int Count, int Ld>
GPU_DEVICE void scale_columns(Sum (&sum)[Count], const Tile<Format, Ld>& tile) {
  GPU_UNROLL
  for (int n = 0; n < Count; ++n) {
    const int c = 8 * n + 2 * (lane_index() % 4);
    const float m[2] = {tile.value(0, c), tile.value(0, c + 1)};
    GPU_UNROLL
    for (int e = 0; e < 4; ++e) sum[n].r[e] *= m[e % 2];
  }
}

// Calls use(row, column, values[2]) for the pairs of neighbouring columns that this lane holds of 16 rows.
template <int Count, class Use>
GPU_DEVICE void for_each_pair(Sum (&sum)[Count], Use use) {
  GPU_UNROLL
  for (int n = 0; n < Count; ++n) {
    const int column = 8 * n + 2 * (lane_index() % 4);
    use(lane_index() / 4, column, &sum[n].r[0]);
    use(lane_index() / 4 + 8, column, &sum[n].r[2]);
  }
}

GPU_DEVICE MetricStrides contiguous_strides(const MetricInputs& in, const MetricSide& side) {
  return {in.heads * side.tokens * in.width, side.tokens * in.width, in.width};
}

// The segment of a token; -1 (of padding) behind the last one.
GPU_DEVICE std::int32_t segment_of(const MetricSide& side, std::int64_t batch, std::int64_t token) {
  if (!gpu::within(token < side.tokens)) return -1;
  return side.segments == nullptr ? 0 : side.segments[batch * side.tokens + token];
}
GPU_DEVICE bool has_segments(const MetricInputs& in) {
  return in.queries.segments != nullptr || in.keys.segments != nullptr;
}

// Where the first query stands among the keys, with a causal mask; below 0 queries come before all keys.
GPU_DEVICE std::int64_t first_position(const MetricInputs& in) { return in.keys.tokens - in.queries.tokens; }

// `behind`: how many places the key stands behind the query; in 32 bits, of which only the sign and 0 matter.
GPU_DEVICE bool sees(const MetricInputs& in, std::int32_t query_segment, std::int32_t key_segment, int behind) {
  return key_segment == query_segment && key_segment != -1 && (!in.causal || behind <= 0);
}

// to - from, as far as a tile of 64 tokens on either side can tell it from more.
GPU_DEVICE int near_difference(std::int64_t to, std::int64_t from) {
  constexpr int far = 1 << 20;
  const auto difference = to - from;
  return difference > far ? far : difference < -far ? -far : static_cast<int>(difference);
}

// Of a score, per unit of q . p.
GPU_DEVICE float score_gradient(const MetricInputs& in) { return (in.distance ? 2.0f : 1.0f) * in.scale; }

GPU_DEVICE bool drops(const MetricInputs& in) { return in.dropout.key != nullptr; }

// What dropout multiplies the weights of a tile with, from those of a query and a key on; to be made where it is
// needed, so that it takes no registers elsewhere. Tiles start at multiples of their size, so no tile crosses a
// multiple of 65,536 tokens, and the upper half of its places is the same.
class WeightDropout {
 public:
  GPU_DEVICE WeightDropout(const MetricInputs& in, const Place& place, std::int64_t query, std::int64_t key)
      : in_(in.dropout),
        bits_(PlaceBits(in.dropout.key, mixed(in.dropout.number))
                  .from(place_of_weight(in_.first_row + place.batch, place.head, query, key))) {}

  // `further`: (queries << query_shift) + keys from the first.
  GPU_DEVICE bool keeps(std::int64_t further) const {
    return bits_.at(static_cast<std::uint32_t>(further)) >= in_.limit;
  }
  GPU_DEVICE float at(std::int64_t further) const { return keeps(further) ? in_.factor : 0.0f; }

 private:
  const MetricDropout& in_;
  PlaceBits bits_;
};

// Behind the last key that a block of `rows` queries sees.
GPU_DEVICE std::int64_t key_end(const MetricInputs& in, const Place& place, int rows) {
  const auto last = place.first + rows + first_position(in);
  return in.causal && last < in.keys.tokens ? last : in.keys.tokens;
}

// Of two buffers of `Rows` rows, the first row of the one for the tile that starts at `token`.
template <int Rows>
GPU_DEVICE int buffer_row(std::int64_t token) {
  return static_cast<int>(token / Rows % 2) * Rows;
}

// Starts to load a tile of keys into its buffer, with the segment and, for a distance, the bias of each.
template <int Width, int Threads, int Rows, class Format, int Ld>
GPU_DEVICE void start_load_keys(const Tile<Format, Ld>& buffers, std::int32_t* segment, float* half_bias,
                                const float* half_biases, const MetricInputs& in, const Place& place,
                                std::int64_t key) {
  const int first = buffer_row<Rows>(key);
  start_load_p<Width, Threads>(Tile<Format, Ld>{buffers.at(first, 0)}, Rows, in, in.keys, place, key);
  for (int i = gpu::thread_index(); i < Rows; i += Threads) {
    segment[first + i] = segment_of(in.keys, place.batch, key + i);
    if (in.distance)
      half_bias[first + i] =
          gpu::within(key + i < in.keys.tokens) ? half_biases[place.row(in, in.keys, key + i)] : 0.0f;
  }
}

// Sums over the four lanes that hold one row.
GPU_DEVICE float sum_of_row(float value) {
  value += gpu::shuffle_xor(value, 1);
  return value + gpu::shuffle_xor(value, 2);
}
GPU_DEVICE float maximum_of_row(float value) {
  value = gpu::maximum(value, gpu::shuffle_xor(value, 1));
  return gpu::maximum(value, gpu::shuffle_xor(value, 2));
}

// q = p M of Blocks of 16 rows of the tile p from `row` on, not yet rounded. Loads the metric, part by part, into its
// tile; loads of p may be under way.
template <int Threads, class Format, int Blocks, int Columns, int Ld>
GPU_DEVICE void transform(Sum (&q)[Blocks][Columns], const Tile<Format, Ld>& p, int row, const Tile<Format, Ld>& metric,
                          const MetricInputs& in, std::int64_t head) {
  constexpr int width = 8 * Columns, part = metric_rows<Format, width>;
  if (in.form != MetricForm::dense) {
    start_load_metric<width, Threads>(metric, in, head, 0);
    finish_loads();
    GPU_UNROLL
    for (int block = 0; block < Blocks; ++block) {
      load(q[block], p, row + 16 * block);
      if (in.form == MetricForm::diagonal) scale_columns(q[block], metric);
    }
    return;
  }
  GPU_UNROLL
  for (int block = 0; block < Blocks; ++block) clear(q[block]);
  GPU_DO_NOT_UNROLL
  for (int first = 0; first < width; first += part) {
    if (first > 0) gpu::sync_threads();  // the part before has been read
    start_load_metric<width, Threads>(metric, in, head, first);
    finish_loads();
    if constexpr (is_split<Format>) {
      // More steps would be loaded ahead into too many registers.
      GPU_DO_NOT_UNROLL
      for (int k = 0; k < part; k += Format::depth) {
        Left left[Blocks][1];
        GPU_UNROLL
        for (int block = 0; block < Blocks; ++block) load(left[block][0], p, row + 16 * block, first + k);
        multiply(q, left, metric, k);
      }
    } else {
      Left left[Blocks][part / Format::depth];
      GPU_UNROLL
      for (int block = 0; block < Blocks; ++block) load(left[block], p, row + 16 * block, first);
      multiply(q, left, metric, 0);
    }
  }
}

// How results leave the registers of a warp, in as few accesses as alignment allows.

// Neighbours in shared memory; `at` is aligned to both. Two of 32 bits in one store would take more registers.
template <class Format>
GPU_DEVICE void store_pair(typename Format::Element* at, float low, float high) {
  if constexpr (Format::depth == 16) {
    gpu::store_pair(at, pack<Format>(low, high));
  } else {
    at[0] = low;
    at[1] = high;
  }
}

// Lanes that differ in a bit swap the entries whose numbers do: after exchange<1> and exchange<2> entry i of lane c of
// a row is what entry c of lane i was.
template <int Bit>
GPU_DEVICE void exchange(unsigned (&words)[4]) {
  const bool upper = (lane_index() & Bit) != 0;
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    if ((i & Bit) != 0) continue;
    const unsigned sent = upper ? words[i] : words[i + Bit];
    const unsigned got = gpu::bits_of(gpu::shuffle_xor(gpu::float_of(sent), Bit));
    if (upper) {
      words[i] = got;
    } else {
      words[i + Bit] = got;
    }
  }
}

// Calls use(row, column, words) for runs of 8 columns of 16 bits, of 16 rows. The lanes of a row exchange what they
// hold for that.
template <class Format, int Count, class Use>
GPU_DEVICE void for_each_run(const Sum (&sum)[Count], Use use) {
  const int lane = lane_index() % 4;
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) {
    GPU_UNROLL
    for (int n = 0; n < Count; n += 4) {
      unsigned words[4];
      GPU_UNROLL
      for (int i = 0; i < 4; ++i)
        words[i] = n + i < Count ? pack<Format>(sum[n + i].r[2 * h], sum[n + i].r[2 * h + 1]) : 0u;
      exchange<1>(words);
      exchange<2>(words);
      if (n + lane < Count) use(lane_index() / 4 + 8 * h, 8 * (n + lane), words);
    }
  }
}

// Writes what exists of 16 rows, `first` being the token of the first, to the columns from `first_column` on: rows that
// are aligned in as few accesses as fill whole sectors of memory.
template <class Format, int Count>
GPU_DEVICE void store(Sum (&sum)[Count], typename Format::Element* target, const MetricStrides& strides,
                      const MetricInputs& in, const MetricSide& side, const Place& place, std::int64_t first,
                      int first_column = 0) {
  auto* rows = target + place.offset(strides, first) + first_column;
  const auto exists = [&](int row, int column) {
    return gpu::within(first + row < side.tokens) && gpu::within(first_column + column < in.width);
  };
  if (!gpu::aligned(is_aligned(rows, strides.token))) {
    for_each_pair(sum, [&](int row, int column, const float* values) {
      if (!exists(row, column)) return;
      auto* at = rows + row * strides.token + column;
      at[0] = Format::from_float(values[0]);
      at[1] = Format::from_float(values[1]);
    });
  } else if constexpr (Format::depth == 16) {
    for_each_run<Format>(sum, [&](int row, int column, const unsigned(&words)[4]) {
      if (exists(row, column)) gpu::store_16(rows + row * strides.token + column, words);
    });
  } else {
    for_each_pair(sum, [&](int row, int column, const float* values) {
      if (exists(row, column)) gpu::store_pair(rows + row * strides.token + column, values[0], values[1]);
    });
  }
}

}  // namespace metaformer::cuda
