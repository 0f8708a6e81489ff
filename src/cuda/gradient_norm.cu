#include <algorithm>

#include "cuda/gradient_norm.h"
#include "cuda/sums.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256, warps = threads / gpu::warp_size;
constexpr int at_once = 4;  // loads of 16 bytes that a thread waits for together
// Blocks that the largest GPUs run at a time. Not asked of the device, so that all devices add in the same order.
constexpr std::int64_t most_blocks = 1024;

GPU_DEVICE float square_of(const unsigned (&words)[4]) {
  float sum = 0;
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) sum += gpu::float_of(words[i]) * gpu::float_of(words[i]);
  return sum;
}

// The squares of every `step`-th group of four, from group `first` on.
GPU_DEVICE float squares_of_groups(const float* x, std::int64_t first, std::int64_t groups, std::int64_t step) {
  float sum = 0;
  std::int64_t i = first;
  for (; gpu::within(i + (at_once - 1) * step < groups); i += at_once * step) {
    unsigned words[at_once][4];
    GPU_UNROLL
    for (int k = 0; k < at_once; ++k) gpu::load_16(words[k], x + 4 * (i + k * step));
    GPU_UNROLL
    for (int k = 0; k < at_once; ++k) sum += square_of(words[k]);
  }
  for (; gpu::within(i < groups); i += step) {
    unsigned words[4];
    gpu::load_16(words, x + 4 * i);
    sum += square_of(words);
  }
  return sum;
}

GPU_KERNEL(threads)
gradient_squares_kernel(const float* x, std::int64_t count, std::int64_t blocks, bool is_aligned, float* partial) {
  GPU_SHARED_MEMORY(memory);
  const auto first = gpu::block_index() * threads + gpu::thread_index(), step = blocks * threads;
  const auto groups = gpu::aligned(is_aligned) ? count / 4 : 0;
  float sum = squares_of_groups(x, first, groups, step);
  for (auto i = 4 * groups + first; gpu::within(i < count); i += step) sum += x[i] * x[i];
  sum = block_sum<warps>(sum, reinterpret_cast<float*>(memory));
  if (gpu::thread_index() == 0) partial[gpu::block_index()] = sum;
}

GPU_DEVICE bool is_finite(float x) { return x - x == 0; }

GPU_KERNEL(threads) gradient_norm_kernel(const GradientNorm in, std::int64_t blocks) {
  GPU_SHARED_MEMORY(memory);
  constexpr float epsilon = 1e-6f;  // as torch.nn.utils.clip_grad_norm_
  const double squares = sum_of<threads>(in.partial, blocks, reinterpret_cast<double*>(memory));
  if (gpu::thread_index() != 0) return;
  const float scaled = gpu::square_root(static_cast<float>(squares));
  const float norm = in.divisor == nullptr ? scaled : scaled / *in.divisor;
  const float factor = static_cast<float>(in.limit) / (norm + epsilon);
  *in.norm = norm;
  if (in.found_inf != nullptr) *in.found_inf = is_finite(scaled) ? 0 : 1;
  if (in.factor != nullptr) *in.factor = is_finite(norm) && factor < 1 ? factor : 1;
}

}  // namespace

std::int64_t gradient_norm_parts(std::int64_t count) {
  constexpr std::int64_t of_block = 4 * at_once * threads;
  return std::min((count + of_block - 1) / of_block, most_blocks);
}

void gradient_norm(const GradientNorm& arguments, void* given_stream) {
  auto* stream = static_cast<gpu::Stream>(given_stream);
  const auto blocks = gradient_norm_parts(arguments.count);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(arguments.gradients) % 16 == 0;
  if (blocks > 0)
    gpu::launch(gradient_squares_kernel, blocks, threads, warps * static_cast<int>(sizeof(float)), stream,
                arguments.gradients, arguments.count, blocks, is_aligned, arguments.partial);
  gpu::launch(gradient_norm_kernel, 1, threads, threads * static_cast<int>(sizeof(double)), stream, arguments, blocks);
}

}  // namespace metaformer::cuda
