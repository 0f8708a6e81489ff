#pragma once
// How results leave the registers of a warp, in as few accesses as alignment allows.

#include "cuda/metric_tiles.h"

namespace metaformer::cuda {

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
