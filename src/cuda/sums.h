#pragma once
// Sums and maxima over the threads of a warp and of a block, in an order that never changes.

#include <cstdint>

#include "cuda/fragments.h"

namespace metaformer::cuda {

// Over the lanes of a warp; every lane has the same bits.
GPU_DEVICE float warp_sum(float x) {
  GPU_UNROLL
  for (int mask = gpu::warp_size / 2; mask > 0; mask /= 2) x += gpu::shuffle_xor(x, mask);
  return x;
}
GPU_DEVICE float warp_maximum(float x) {
  GPU_UNROLL
  for (int mask = gpu::warp_size / 2; mask > 0; mask /= 2) x = gpu::maximum(x, gpu::shuffle_xor(x, mask));
  return x;
}

// Over the threads of a block of `Warps` warps. `shared`: a float for each warp, of which nothing else makes use.
template <int Warps>
GPU_DEVICE float block_sum(float x, float* shared) {
  const float of_warp = warp_sum(x);
  if (lane_index() == 0) shared[warp_index()] = of_warp;
  gpu::sync_threads();
  float sum = 0;
  GPU_UNROLL
  for (int w = 0; w < Warps; ++w) sum += shared[w];
  return sum;
}
template <int Warps>
GPU_DEVICE float block_maximum(float x, float* shared) {
  const float of_warp = warp_maximum(x);
  if (lane_index() == 0) shared[warp_index()] = of_warp;
  gpu::sync_threads();
  float greatest = shared[0];
  GPU_UNROLL
  for (int w = 1; w < Warps; ++w) greatest = gpu::maximum(greatest, shared[w]);
  return greatest;
}

// The sum of `count` floats, in double, by a block of `Threads` threads; the first thread has it. `shared`: a double
// for each thread.
template <int Threads>
GPU_DEVICE double sum_of(const float* x, std::int64_t count, double* shared) {
  const int thread = gpu::thread_index();
  double sum = 0;
  GPU_UNROLL_BY(8)
  for (std::int64_t i = thread; gpu::within(i < count); i += Threads) sum += static_cast<double>(x[i]);
  shared[thread] = sum;
  GPU_UNROLL
  for (int half = Threads / 2; half > 0; half /= 2) {
    gpu::sync_threads();
    if (thread < half) shared[thread] += shared[thread + half];
  }
  return shared[0];
}

}  // namespace metaformer::cuda
