// Prints the results of every wrapper of gpu.h for chosen inputs. Compiled for the emulator and for a GPU, both must
// print the same (scripts/gpu_check.sh); then the emulated tests are valid for the instructions.

#include <cmath>
#include <cstdio>

#include "cuda/kernel_memory.h"
#include "gpu.h"

namespace metaformer {

namespace {

constexpr int lanes = gpu::warp_size;

// Distinct values whose products and sums are exact in every type.
GPU_DEVICE float small_integer(int i) { return static_cast<float>(i * 7 % 15 - 7); }

GPU_KERNEL(lanes) matrices_kernel(unsigned* out) {
  GPU_SHARED_MEMORY(memory);
  auto* tile = reinterpret_cast<std::uint16_t*>(memory);  // 32 rows of 8
  const int lane = gpu::thread_index();
  for (int i = 0; i < 8; ++i) tile[lane * 8 + i] = static_cast<std::uint16_t>(lane * 8 + i);
  gpu::sync_threads();
  unsigned r[4];
  gpu::load_matrices(r, tile + lane * 8);
  for (int i = 0; i < 4; ++i) out[lane * 8 + i] = r[i];
  gpu::load_matrices_transposed(r, tile + lane * 8);
  for (int i = 0; i < 4; ++i) out[lane * 8 + 4 + i] = r[i];
}

GPU_DEVICE unsigned pair_bf16(int i) {
  return gpu::to_bf16(small_integer(i)) | static_cast<unsigned>(gpu::to_bf16(small_integer(i + 1))) << 16;
}
GPU_DEVICE unsigned pair_fp16(int i) {
  return gpu::to_fp16(small_integer(i)) | static_cast<unsigned>(gpu::to_fp16(small_integer(i + 1))) << 16;
}

GPU_KERNEL(lanes) products_kernel(float* out) {
  const int lane = gpu::thread_index();
  float c[3][4];
  for (auto& sum : c)
    for (int i = 0; i < 4; ++i) sum[i] = small_integer(lane * 4 + i);
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = pair_bf16(lane * 11 + 3 * i);
  for (int i = 0; i < 2; ++i) b[i] = pair_bf16(lane * 5 + 2 * i + 1);
  gpu::multiply_add_bf16(c[0], a, b);
  for (int i = 0; i < 4; ++i) a[i] = pair_fp16(lane * 11 + 3 * i);
  for (int i = 0; i < 2; ++i) b[i] = pair_fp16(lane * 5 + 2 * i + 1);
  gpu::multiply_add_fp16(c[1], a, b);
  for (int i = 0; i < 4; ++i) a[i] = gpu::to_tf32(small_integer(lane * 11 + 3 * i));
  for (int i = 0; i < 2; ++i) b[i] = gpu::to_tf32(small_integer(lane * 5 + 2 * i + 1));
  gpu::multiply_add_tf32(c[2], a, b);
  for (int p = 0; p < 3; ++p)
    for (int i = 0; i < 4; ++i) out[(p * lanes + lane) * 4 + i] = c[p][i];
}

GPU_KERNEL(lanes) shuffles_kernel(float* out) {
  const int lane = gpu::thread_index();
  out[lane] = gpu::shuffle_xor(static_cast<float>(lane), 1);
  out[lanes + lane] = gpu::shuffle_xor(static_cast<float>(lane), 2);
}

GPU_KERNEL(lanes) copies_kernel(const float* in, float* out) {
  GPU_SHARED_MEMORY(memory);
  auto* tile = reinterpret_cast<float*>(memory);
  const int lane = gpu::thread_index();
  gpu::copy_async_16(tile + 4 * lane, in + 4 * lane, lane % 3 != 0);
  gpu::commit_copies();
  gpu::copy_async_16(tile + 4 * (lanes + lane), in + 4 * lane, lane % 2 == 0);
  gpu::commit_copies();
  gpu::wait_copies<1>();
  gpu::sync_threads();
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = tile[4 * (lane ^ 1) + i];
  gpu::wait_copies<0>();
  gpu::sync_threads();
  for (int i = 0; i < 4; ++i) out[4 * (lanes + lane) + i] = tile[4 * (lanes + (lane ^ 1)) + i];
}

// Ties, the ends of the ranges, infinities.
GPU_DEVICE float odd_number(int i) {
  const unsigned bits[] = {0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0xbf801000, 0x3f803000,
                           0x3f802fff, 0x33000000, 0x33800000, 0x477fe000, 0x477ff000, 0x477fefff, 0x7f7fffff,
                           0x7f800000, 0xff800000, 0x00000000, 0x80000000, 0x38800000, 0x387fc000, 0x38801000,
                           0x42280000, 0xc2f60000, 0x3eaaaaab, 0x40490fdb, 0xbeaaaaab, 0x4b000001, 0x3f801001,
                           0x3f800fff, 0x37ffffff, 0x3f7fffff, 0xc0000001};
  return gpu::float_of(bits[i]);
}

GPU_KERNEL(lanes) roundings_kernel(unsigned* out) {
  const int lane = gpu::thread_index();
  const float x = odd_number(lane);
  out[lane * 5] = gpu::to_bf16(x);
  out[lane * 5 + 1] = gpu::to_fp16(x);
  out[lane * 5 + 2] = gpu::to_tf32(x) & ~0x1fffu;  // products ignore the low bits
  out[lane * 5 + 3] = gpu::bits_of(gpu::from_bf16(gpu::to_bf16(x)));
  out[lane * 5 + 4] = gpu::bits_of(gpu::from_fp16(gpu::to_fp16(x)));
}

GPU_KERNEL(lanes) functions_kernel(float* out) {
  const int lane = gpu::thread_index();
  const float x = 0.37f * static_cast<float>(lane) - 6;
  out[lane * 7] = lane == 31 ? gpu::exp2_approximate(-INFINITY) : gpu::exp2_approximate(x);
  out[lane * 7 + 1] = gpu::log2_approximate(0.5f + static_cast<float>(lane));
  out[lane * 7 + 2] = gpu::fused_multiply_add(x, 1.0001f, 3.0f);
  out[lane * 7 + 3] = gpu::reciprocal_root(1e-6f + static_cast<float>(lane));
  out[lane * 7 + 4] = gpu::square_root(static_cast<float>(lane));
  out[lane * 7 + 5] = gpu::logarithm(0.9f + 0.37f * static_cast<float>(lane));
  out[lane * 7 + 6] = gpu::reciprocal_approximate(lane == 31 ? 1e38f : 1 + 0.37f * static_cast<float>(lane));
}

// Products that a fused sum would not round, of numbers that no compiler can round otherwise.
GPU_KERNEL(lanes) rounded_products_kernel(float* out) {
  const int lane = gpu::thread_index();
  const float x = gpu::float_of(0x3f800001u + 0x12345u * static_cast<unsigned>(lane));
  out[lane] = gpu::product(x, x) - x;
}

// Each lane stores its 16 bytes in reverse order at the place of another lane.
GPU_KERNEL(lanes) accesses_kernel(const unsigned* in, unsigned* out) {
  const int lane = gpu::thread_index();
  unsigned words[4];
  gpu::load_16(words, in + 4 * lane);
  const unsigned turned[4] = {words[3], words[2], words[1], words[0]};
  gpu::store_16(out + 4 * (lane ^ 5), turned);
  unsigned first = 0, second = 0;
  gpu::load_8(first, second, in + 2 * lane);
  gpu::store_8(out + 4 * lanes + 2 * (lane ^ 5), second, first);
}

// Blocks run in turn, by the numbers that they take: each reads the result of the one before. Another order would give
// other results.
GPU_KERNEL(lanes) turns_kernel(unsigned* counters, float* values) {
  GPU_SHARED_MEMORY(memory);
  auto* number = reinterpret_cast<unsigned*>(memory);
  const int lane = gpu::thread_index();
  if (lane == 0) *number = gpu::take_number(counters);
  gpu::sync_warp();
  const unsigned turn = *number;
  if (lane == 0) gpu::wait_for(counters + 1, turn);
  gpu::sync_warp();
  gpu::store_handed_on(values + lane, 0.5f * gpu::load_handed_on(values + lane) + static_cast<float>(turn + lane));
  float* four = values + lanes + 4 * lane;
  const float third = static_cast<float>(turn) / 3, added[4] = {third, 1, third * third, static_cast<float>(lane)};
  if (gpu::adds_in_memory) {
    gpu::add_handed_on(four, added);
  } else {
    float sum[4];
    gpu::load_handed_on(sum, four);
    for (int e = 0; e < 4; ++e) sum[e] += added[e];
    gpu::store_handed_on(four, sum);
  }
  gpu::sync_warp();
  if (lane == 0) gpu::announce(counters + 1, turn + 1);
}

unsigned* words(const KernelMemory& memory) { return reinterpret_cast<unsigned*>(memory.data()); }

void print_words(const char* name, const KernelMemory& memory, int count) {
  for (int i = 0; i < count; ++i) std::printf("%s %d %08x\n", name, i, words(memory)[i]);
}

void print_numbers(const char* name, const KernelMemory& memory, int count) {
  for (int i = 0; i < count; ++i) std::printf("%s %d %.9g\n", name, i, static_cast<double>(memory.floats()[i]));
}

}  // namespace

void print_probes() {
  const KernelMemory matrices(4 * 8 * lanes), products(4 * 12 * lanes), shuffles(4 * 2 * lanes), in(4 * 4 * lanes),
      copies(4 * 8 * lanes), roundings(4 * 5 * lanes), functions(4 * 7 * lanes), counters(8), handed_on(4 * 5 * lanes),
      accesses(4 * 6 * lanes), rounded(4 * lanes);
  for (int i = 0; i < 4 * lanes; ++i) in.floats()[i] = static_cast<float>(i);
  gpu::launch(matrices_kernel, 1, lanes, 512, nullptr, words(matrices));
  gpu::launch(products_kernel, 1, lanes, 0, nullptr, products.floats());
  gpu::launch(shuffles_kernel, 1, lanes, 0, nullptr, shuffles.floats());
  gpu::launch(copies_kernel, 1, lanes, 32 * lanes, nullptr, static_cast<const float*>(in.floats()), copies.floats());
  gpu::launch(roundings_kernel, 1, lanes, 0, nullptr, words(roundings));
  gpu::launch(functions_kernel, 1, lanes, 0, nullptr, functions.floats());
  words(counters)[0] = words(counters)[1] = 0;
  for (int i = 0; i < 5 * lanes; ++i) handed_on.floats()[i] = 0;
  gpu::launch(turns_kernel, 20, lanes, 16, nullptr, words(counters), handed_on.floats());
  gpu::launch(accesses_kernel, 1, lanes, 0, nullptr, static_cast<const unsigned*>(words(in)), words(accesses));
  gpu::launch(rounded_products_kernel, 1, lanes, 0, nullptr, rounded.floats());
  finish_kernels();
  print_words("matrices", matrices, 8 * lanes);
  print_words("products", products, 12 * lanes);
  print_words("shuffles", shuffles, 2 * lanes);
  print_words("copies", copies, 8 * lanes);
  print_words("accesses", accesses, 6 * lanes);
  print_words("rounded", rounded, lanes);
  print_words("roundings", roundings, 5 * lanes);
  print_numbers("turns", handed_on, 5 * lanes);
  print_numbers("functions", functions, 7 * lanes);
}

}  // namespace metaformer

int main() { metaformer::print_probes(); }
