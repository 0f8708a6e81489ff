#pragma once
// Rows of fp32, bf16 or fp16 in memory, four neighbouring entries at a time, and sums of rows in an order that never
// changes.

#include <cstdint>

#include "cuda/fragments.h"
#include "cuda/row_element.h"

namespace metaformer::cuda {

constexpr int columns_of_lane = 4;

// Calls use.template operator()<Format>() for the type; all threads take the same way.
template <class Use>
GPU_DEVICE void with_format(RowElement element, Use use) {
  if (element == RowElement::fp32) {
    use.template operator()<Fp32>();
  } else if (element == RowElement::bf16) {
    use.template operator()<Bf16>();
  } else {
    use.template operator()<Fp16>();
  }
}

// Four neighbouring entries as they lie in memory: in words, or in the first two of them.
template <class Format>
GPU_DEVICE void load_four(unsigned (&words)[4], const typename Format::Element* from) {
  if constexpr (sizeof(typename Format::Element) == 4) {
    gpu::load_16(words, from);
  } else {
    gpu::load_8(words[0], words[1], from);
  }
}
template <class Format>
GPU_DEVICE void store_four(typename Format::Element* to, const float (&x)[4]) {
  if constexpr (sizeof(typename Format::Element) == 4) {
    const unsigned words[4] = {gpu::bits_of(x[0]), gpu::bits_of(x[1]), gpu::bits_of(x[2]), gpu::bits_of(x[3])};
    gpu::store_16(to, words);
  } else {
    gpu::store_8(to, pack<Format>(x[0], x[1]), pack<Format>(x[2], x[3]));
  }
}
template <class Format>
GPU_DEVICE void put(unsigned (&words)[4], int i, typename Format::Element entry) {
  if constexpr (sizeof(typename Format::Element) == 4) {
    words[i] = gpu::bits_of(entry);
  } else {
    words[i / 2] = i % 2 == 0 ? entry : words[i / 2] | static_cast<unsigned>(entry) << 16;
  }
}
template <class Format>
GPU_DEVICE float entry_of(const unsigned (&words)[4], int i) {
  if constexpr (sizeof(typename Format::Element) == 4) {
    return gpu::float_of(words[i]);
  } else {
    return Format::to_float(static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16)));
  }
}

// The same for the first `count` of four entries, which may be none or all; the others become 0. `aligned`: `from` is
// aligned to four entries, and none or all exist. Nothing waits for the memory until entry_of() uses the words.
template <class Format>
GPU_DEVICE void load_some(unsigned (&words)[4], const typename Format::Element* from, int count, bool aligned) {
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) words[i] = 0;
  if (gpu::aligned(aligned)) {
    if (gpu::within(count > 0)) load_four<Format>(words, from);
    return;
  }
  GPU_UNROLL
  for (int i = 0; i < 4; ++i)
    if (gpu::within(i < count)) put<Format>(words, i, from[i]);
}
template <class Format>
GPU_DEVICE void store_some(typename Format::Element* to, const float (&x)[4], int count, bool aligned) {
  if (gpu::aligned(aligned)) {
    if (gpu::within(count > 0)) store_four<Format>(to, x);
    return;
  }
  GPU_UNROLL
  for (int i = 0; i < 4; ++i)
    if (gpu::within(i < count)) to[i] = Format::from_float(x[i]);
}

constexpr int sum_threads = 512, sum_warps = sum_threads / gpu::warp_size;

// The sum of number `at` of every one of `parts` rows of `size` numbers, by a block of sum_threads threads: a lane for
// each number, and a warp for every sum_warps-th row. The first warp has the sums. `sums`: a float for each thread.
GPU_DEVICE float sum_of_parts(const float* partial, std::int64_t parts, std::int64_t size, std::int64_t at,
                              float* sums) {
  float sum = 0;
  if (gpu::within(at < size)) {
    GPU_UNROLL_BY(8)
    for (std::int64_t part = warp_index(); part < parts; part += sum_warps) sum += partial[part * size + at];
  }
  sums[gpu::thread_index()] = sum;
  gpu::sync_threads();
  if (warp_index() > 0) return 0;
  for (int warp = 1; warp < sum_warps; ++warp) sum += sums[warp * gpu::warp_size + lane_index()];
  return sum;
}

// The blocks for a number of things of which a block takes some.
inline std::int64_t blocks_for(std::int64_t things, std::int64_t of_block) {
  return (things + of_block - 1) / of_block;
}

inline bool is_aligned_to(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// The bytes of four entries.
inline std::size_t bytes_of_four(RowElement element) { return element == RowElement::fp32 ? 16 : 8; }

}  // namespace metaformer::cuda
