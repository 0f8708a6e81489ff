#pragma once
// The GPU as the kernels see it: every CUDA builtin and every PTX instruction they use, one thin wrapper each. The
// tests compile the same kernels with a plain C++ compiler against a header of the same name that emulates them
// (tests/cuda/emulated/gpu.h): what is declared here is declared there, with the same meaning.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "base/error.h"

#define GPU_KERNEL(threads) __global__ void __launch_bounds__(threads, 1)
#define GPU_DEVICE __device__ __forceinline__
#define GPU_ANYWHERE __host__ __device__ __forceinline__
#define GPU_UNROLL _Pragma("unroll")
#define GPU_DO_NOT_UNROLL _Pragma("unroll 1")
#define GPU_PRAGMA(text) _Pragma(#text)
#define GPU_UNROLL_BY(count) GPU_PRAGMA(unroll(count))
#define GPU_SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

namespace metaformer::gpu {

constexpr bool is_emulated = false;
constexpr int warp_size = 32;

GPU_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
GPU_DEVICE std::int64_t block_index() { return blockIdx.x; }

GPU_DEVICE void sync_threads() { __syncthreads(); }
GPU_DEVICE void sync_warp() { __syncwarp(); }
GPU_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// A bound that memory safety or a result depends on. The tests drop one at a time, to see that it is missed.
GPU_DEVICE bool within(bool condition) { return condition; }

// That rows are aligned for copy_async_16. The tests say so of rows that are not, to see that it is missed.
GPU_DEVICE bool aligned(bool condition) { return condition; }

// The counter of a random draw. The tests shift one, to see that it is noticed.
GPU_DEVICE std::int64_t counter(std::int64_t place) { return place; }

// How blocks hand on data in global memory. A warp (or block) of one stores, passes a barrier and announces; one of
// another waits for that and passes a barrier. Then it sees all that the first has stored. A block may wait for those
// that have taken a lower number: they have begun.
GPU_DEVICE unsigned take_number(unsigned* counter) { return atomicAdd(counter, 1u); }
GPU_DEVICE void wait_for(const unsigned* counter, unsigned least) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < least);
}
GPU_DEVICE void announce(unsigned* counter, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;\n" ::"l"(counter), "r"(value) : "memory");
}
// Past the cache of a multiprocessor, which other multiprocessors do not write.
GPU_DEVICE float load_handed_on(const float* from) { return __ldcg(from); }
GPU_DEVICE void store_handed_on(float* to, float value) { __stcg(to, value); }
// Four in one access, aligned to 16 bytes.
GPU_DEVICE void load_handed_on(float (&values)[4], const float* from) {
  const auto four = __ldcg(reinterpret_cast<const float4*>(from));
  values[0] = four.x;
  values[1] = four.y;
  values[2] = four.z;
  values[3] = four.w;
}
GPU_DEVICE void store_handed_on(float* to, const float (&values)[4]) {
  __stcg(reinterpret_cast<float4*>(to), make_float4(values[0], values[1], values[2], values[3]));
}

// Adds without loading, where the GPU can. Additions before an announcement come before those of a warp that waits for
// it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool adds_in_memory = true;
GPU_DEVICE void add_handed_on(float* to, const float (&values)[4]) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(values[0]), "f"(values[1]),
               "f"(values[2]), "f"(values[3])
               : "memory");
}
#else
constexpr bool adds_in_memory = false;
GPU_DEVICE void add_handed_on(float*, const float (&)[4]) {}
#endif

GPU_DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Starts a copy of 16 bytes, both sides aligned to them; zeros instead when not valid.
GPU_DEVICE void copy_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
GPU_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until at most `Groups` of this thread's committed groups are under way.
template <int Groups>
GPU_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Groups) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
GPU_DEVICE void load_matrices(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
GPU_DEVICE void load_matrices_transposed(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a b for a 16 x 16 (tf32: 16 x 8) and b 16 x 8 (tf32: 8 x 8), in the layout of mma.sync.
GPU_DEVICE void multiply_add_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GPU_DEVICE void multiply_add_fp16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GPU_DEVICE void multiply_add_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 2^x to about 2 units in the last place; 0 for -infinity.
GPU_DEVICE float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x to about 1 unit in the last place; 0 for x above 2^126.
GPU_DEVICE float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
// a b + c, rounded once.
GPU_DEVICE float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// a b, rounded even if it is added to something.
GPU_DEVICE float product(float a, float b) { return __fmul_rn(a, b); }
// Of numbers; the other one where one is NaN.
GPU_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
GPU_DEVICE float log2_approximate(float x) { return __log2f(x); }
// 1 / sqrt(x), rounded once.
GPU_DEVICE float reciprocal_root(float x) { return __frsqrt_rn(x); }
// sqrt(x), rounded once.
GPU_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
// ln x to about 1 unit in the last place, also for x near 1.
GPU_DEVICE float logarithm(float x) { return logf(x); }

// Rounding to nearest; ties to even, for tf32 away from zero. The bits of a bf16 or fp16 lie in the low half.
GPU_DEVICE std::uint16_t to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
GPU_DEVICE std::uint16_t to_fp16(float x) { return __half_as_ushort(__float2half_rn(x)); }
GPU_DEVICE float from_bf16(std::uint16_t x) { return __bfloat162float(__ushort_as_bfloat16(x)); }
GPU_DEVICE float from_fp16(std::uint16_t x) { return __half2float(__ushort_as_half(x)); }
GPU_DEVICE unsigned to_tf32(float x) {
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(y) : "f"(x));
  return y;
}
GPU_DEVICE unsigned bits_of(float x) { return __float_as_uint(x); }
GPU_DEVICE float float_of(unsigned x) { return __uint_as_float(x); }

// 16 bytes in one load; `from` is aligned to them.
GPU_DEVICE void load_16(unsigned (&words)[4], const void* from) {
  const auto four = *static_cast<const uint4*>(from);
  words[0] = four.x;
  words[1] = four.y;
  words[2] = four.z;
  words[3] = four.w;
}
// 16 bytes in one store; `at` is aligned to them.
GPU_DEVICE void store_16(void* at, const unsigned (&words)[4]) {
  *static_cast<uint4*>(at) = make_uint4(words[0], words[1], words[2], words[3]);
}
// 8 bytes in one access; both addresses are aligned to them.
GPU_DEVICE void load_8(unsigned& first, unsigned& second, const void* from) {
  const auto two = *static_cast<const uint2*>(from);
  first = two.x;
  second = two.y;
}
GPU_DEVICE void store_8(void* at, unsigned first, unsigned second) {
  *static_cast<uint2*>(at) = make_uint2(first, second);
}
// Two elements in one store; `at` is aligned to both.
GPU_DEVICE void store_pair(std::uint16_t* at, unsigned both) { *reinterpret_cast<unsigned*>(at) = both; }
GPU_DEVICE void store_pair(float* at, float low, float high) {
  *reinterpret_cast<float2*>(at) = make_float2(low, high);
}

using Stream = cudaStream_t;

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Error(ExitCode::failure, std::string(what) + ": " + cudaGetErrorString(error));
}

// The bytes of shared memory that the current device gives a block.
inline int most_shared_memory() {
  int device = 0, most = 0;
  check(cudaGetDevice(&device), "current device");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory of a device");
  return most;
}

inline void allow_shared_memory(const void* kernel, int bytes) {
  if (const int most = most_shared_memory(); bytes > most)
    throw Error(ExitCode::failure, "a kernel needs " + std::to_string(bytes) +
                                       " bytes of shared memory, and the device gives a block " + std::to_string(most));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory of a kernel");
}

// Starts the kernel with `shared_bytes` of dynamic shared memory; throws Error (exit code 1) when that is refused.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes, Stream stream,
            const Arguments&... arguments) {
  constexpr int without_asking = 48 << 10;
  if (shared_bytes > without_asking) allow_shared_memory(reinterpret_cast<const void*>(kernel), shared_bytes);
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes),
           stream>>>(arguments...);
  check(cudaGetLastError(), "launch of a kernel");
}

}  // namespace metaformer::gpu
