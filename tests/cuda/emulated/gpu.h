#pragma once
// An emulated GPU: the declarations of src/cuda/ptx/gpu.h for a plain C++ compiler.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "cuda/emulator.h"

#define GPU_KERNEL(threads) inline void
#define GPU_DEVICE inline
#define GPU_ANYWHERE inline
#define GPU_UNROLL
#define GPU_DO_NOT_UNROLL
#define GPU_UNROLL_BY(count)
#define GPU_SHARED_MEMORY(name) unsigned char* const name = ::metaformer::emulator::shared_memory()

namespace metaformer::gpu {

constexpr bool is_emulated = true;
constexpr int warp_size = 32;

using Where = std::source_location;

inline int thread_index() { return emulator::thread_index(); }
inline std::int64_t block_index() { return emulator::block_index(); }

inline void sync_threads(const Where& where = Where::current()) { emulator::sync_threads(where); }
inline void sync_warp(const Where& where = Where::current()) {
  if (emulator::is_broken(emulator::Fault::no_barrier, where)) return;
  emulator::collective("sync_warp", nullptr, [](void* const(&)[warp_size]) {});
}

inline float shuffle_xor(float value, int mask) {
  struct Lane {
    float value;
    int mask;
    float result = 0;
  } lane{value, mask};
  emulator::collective("shuffle_xor", &lane, [](void* const(&lanes)[warp_size]) {
    const auto at = [&](int i) { return static_cast<Lane*>(lanes[i]); };
    for (int i = 0; i < warp_size; ++i) at(i)->result = at(i ^ at(i)->mask)->value;
  });
  return lane.result;
}

inline bool within(bool condition, const Where& where = Where::current()) {
  return emulator::is_broken(emulator::Fault::no_bound, where) || condition;
}

inline bool aligned(bool condition, const Where& where = Where::current()) {
  return emulator::is_broken(emulator::Fault::no_alignment, where) || condition;
}

inline std::int64_t counter(std::int64_t place, const Where& where = Where::current()) {
  return place + (emulator::is_broken(emulator::Fault::shifted_draw, where) ? 1 : 0);
}

inline unsigned take_number(unsigned* counter, const Where& where = Where::current()) {
  if (emulator::is_broken(emulator::Fault::no_number, where)) return static_cast<unsigned>(block_index());
  return (*counter)++;
}
inline void wait_for(const unsigned* counter, unsigned least, const Where& where = Where::current()) {
  emulator::wait_for(counter, least, where);
}
inline void announce(unsigned* counter, unsigned value) { *counter = value; }
inline float load_handed_on(const float* from) { return *from; }
inline void store_handed_on(float* to, float value) { *to = value; }
inline void load_handed_on(float (&values)[4], const float* from) {
  emulator::require_aligned(from, 16);
  std::memcpy(values, from, 16);
}
inline void store_handed_on(float* to, const float (&values)[4]) {
  emulator::require_aligned(to, 16);
  std::memcpy(to, values, 16);
}
#ifdef EMULATE_AMPERE
constexpr bool adds_in_memory = false;
#else
constexpr bool adds_in_memory = true;
#endif
inline void add_handed_on(float* to, const float (&values)[4]) {
  emulator::require_aligned(to, 16);
  for (int e = 0; e < 4; ++e) to[e] += values[e];
}

inline void copy_async_16(void* shared, const void* global, bool valid) { emulator::start_copy(shared, global, valid); }
inline void commit_copies() { emulator::commit_copies(); }

template <int Groups>
void wait_copies(const Where& where = Where::current()) {
  emulator::wait_copies(Groups + (emulator::is_broken(emulator::Fault::loose_wait, where) ? 1 : 0));
}

struct MatrixLane {
  const void* row;
  unsigned* r;
};

// Lane i holds elements 2 (i % 4) and the next of row i / 4 of each matrix; transposed: of column i / 4.
template <bool Transposed>
void emulate_load_matrices(void* const (&lanes)[warp_size]) {
  const auto at = [&](int i) { return static_cast<MatrixLane*>(lanes[i]); };
  for (int matrix = 0; matrix < 4; ++matrix) {
    for (int i = 0; i < warp_size; ++i) {
      std::uint16_t pair[2];
      for (int e = 0; e < 2; ++e) {
        const int row = Transposed ? 2 * (i % 4) + e : i / 4, column = Transposed ? i / 4 : 2 * (i % 4) + e;
        const auto* from = static_cast<const unsigned char*>(at(8 * matrix + row)->row);
        std::memcpy(&pair[e], from + 2 * column, 2);
      }
      at(i)->r[matrix] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
    }
  }
}

inline void load_matrices(unsigned (&r)[4], const void* row) {
  MatrixLane lane{row, r};
  emulator::collective("load_matrices", &lane, emulate_load_matrices<false>);
}
inline void load_matrices_transposed(unsigned (&r)[4], const void* row) {
  MatrixLane lane{row, r};
  emulator::collective("load_matrices_transposed", &lane, emulate_load_matrices<true>);
}

inline float from_bf16(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }
inline float from_fp16(std::uint16_t x) { return static_cast<float>(std::bit_cast<_Float16>(x)); }
inline std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline std::uint16_t to_fp16(float x) { return std::bit_cast<std::uint16_t>(static_cast<_Float16>(x)); }
inline unsigned to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isfinite(x) ? (bits + 0x1000) & ~0x1fffu : bits;
}
inline unsigned bits_of(float x) { return std::bit_cast<unsigned>(x); }
inline float float_of(unsigned x) { return std::bit_cast<float>(x); }

// x rounded to float toward 0.
inline float toward_zero(double x) {
  const auto nearest = static_cast<float>(x);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(x) ? float_of(bits_of(nearest) - 1) : nearest;
}

// c + sum_k a[k] b[k] as tensor cores add: every addend is cut to `bits` bits from the leading one of the largest, and
// the sum is cut to fp32.
template <int Count>
float add_truncated(float c, const float* a, const float (*b)[8], int column, int bits) {
  double addends[Count + 1] = {c}, plain = c, largest = std::fabs(addends[0]);
  for (int k = 0; k < Count; ++k) {
    addends[k + 1] = static_cast<double>(a[k]) * b[k][column];
    plain += addends[k + 1];
    largest = std::fabs(addends[k + 1]) > largest ? std::fabs(addends[k + 1]) : largest;
  }
  if (largest == 0 || !std::isfinite(plain)) return static_cast<float>(plain);
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> 52) - 1023;
  const auto scale = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + bits - 1 - exponent) << 52);
  std::int64_t sum = 0;
  for (const double addend : addends) sum += static_cast<std::int64_t>(addend * scale);
  return toward_zero(static_cast<double>(sum) / scale);
}

struct ProductLane {
  float* c;
  const unsigned *a, *b;
};

template <int Depth>
float add_products(float c, const float* a, const float (*b)[8], int column) {
  constexpr int half = Depth / 2;
  switch (emulator::arithmetic()) {
    case emulator::Arithmetic::ampere:
      return add_truncated<half>(add_truncated<half>(c, a, b, column, 24), a + half, b + half, column, 24);
    case emulator::Arithmetic::hopper:
      return add_truncated<Depth>(c, a, b, column, 25);
    case emulator::Arithmetic::ideal:
      break;
  }
  float sum = 0;
  for (int k = 0; k < Depth; ++k) sum += a[k] * b[k][column];
  return c + sum;
}

// `Element(bits, e)`: element e of a register. `Per`: elements per register; the depth of the product is 8 Per.
template <int Per, float (*Element)(unsigned, int)>
void emulate_multiply_add(void* const (&lanes)[warp_size]) {
  constexpr int depth = 8 * Per;
  const auto at = [&](int i) { return static_cast<ProductLane*>(lanes[i]); };
  float a[16][depth], b[depth][8];
  for (int i = 0; i < warp_size; ++i) {
    for (int e = 0; e < Per; ++e) {
      const int k = Per * (i % 4) + e;
      a[i / 4][k] = Element(at(i)->a[0], e);
      a[i / 4 + 8][k] = Element(at(i)->a[1], e);
      a[i / 4][k + depth / 2] = Element(at(i)->a[2], e);
      a[i / 4 + 8][k + depth / 2] = Element(at(i)->a[3], e);
      b[k][i / 4] = Element(at(i)->b[0], e);
      b[k + depth / 2][i / 4] = Element(at(i)->b[1], e);
    }
  }
  for (int i = 0; i < warp_size; ++i) {
    for (int e = 0; e < 4; ++e) {
      const int row = i / 4 + 8 * (e / 2), column = 2 * (i % 4) + e % 2;
      at(i)->c[e] = add_products<depth>(at(i)->c[e], a[row], b, column);
    }
  }
}

inline float bf16_element(unsigned bits, int e) { return from_bf16(static_cast<std::uint16_t>(bits >> (16 * e))); }
inline float fp16_element(unsigned bits, int e) { return from_fp16(static_cast<std::uint16_t>(bits >> (16 * e))); }
inline float tf32_element(unsigned bits, int) { return float_of(bits & ~0x1fffu); }  // the GPU ignores the low bits

inline void multiply_add_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  ProductLane lane{c, a, b};
  emulator::collective("multiply_add_bf16", &lane, emulate_multiply_add<2, bf16_element>);
}
inline void multiply_add_fp16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  ProductLane lane{c, a, b};
  emulator::collective("multiply_add_fp16", &lane, emulate_multiply_add<2, fp16_element>);
}
inline void multiply_add_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  ProductLane lane{c, a, b};
  emulator::collective("multiply_add_tf32", &lane, emulate_multiply_add<1, tf32_element>);
}

// y with an error of up to 2 units in the last place that depends on x; exact if x is 0, or y is 0 or not finite.
inline float approximate(float x, float y) {
  if (emulator::arithmetic() == emulator::Arithmetic::ideal || x == 0 || y == 0 || !std::isfinite(y)) return y;
  const auto mixed = std::bit_cast<std::uint32_t>(x) * 0x9e3779b1u;
  const int units = static_cast<int>((mixed >> 16) % 5) - 2;
  return y + static_cast<float>(units) * (std::nextafter(std::fabs(y), INFINITY) - std::fabs(y));
}

inline float exp2_approximate(float x) { return approximate(x, std::exp2(x)); }
inline float reciprocal_approximate(float x) { return std::fabs(x) > 0x1p126F ? 0 / x : approximate(x, 1 / x); }
inline float fused_multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
inline float product(float a, float b) { return std::fma(a, b, -0.0F); }  // the compiler fuses no other sum with it
inline float maximum(float a, float b) { return std::fmax(a, b); }
inline float log2_approximate(float x) { return approximate(x, std::log2(x)); }
inline float reciprocal_root(float x) { return static_cast<float>(1 / std::sqrt(static_cast<double>(x))); }
inline float square_root(float x) { return std::sqrt(x); }
inline float logarithm(float x) { return approximate(x, std::log(x)); }

inline void store_pair(float* at, float low, float high) {
  emulator::require_aligned(at, 8);
  at[0] = low;
  at[1] = high;
}
inline void load_16(unsigned (&words)[4], const void* from) {
  emulator::require_aligned(from, 16);
  std::memcpy(words, from, 16);
}
inline void store_16(void* at, const unsigned (&words)[4]) {
  emulator::require_aligned(at, 16);
  std::memcpy(at, words, 16);
}
inline void load_8(unsigned& first, unsigned& second, const void* from) {
  emulator::require_aligned(from, 8);
  std::memcpy(&first, from, 4);
  std::memcpy(&second, static_cast<const unsigned char*>(from) + 4, 4);
}
inline void store_8(void* at, unsigned first, unsigned second) {
  emulator::require_aligned(at, 8);
  const unsigned words[2] = {first, second};
  std::memcpy(at, words, 8);
}
inline void store_pair(std::uint16_t* at, unsigned both) {
  emulator::require_aligned(at, 4);
  std::memcpy(at, &both, 4);
}

using Stream = void*;

inline int most_shared_memory() { return emulator::most_shared_memory(); }

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes, Stream,
            const Arguments&... arguments) {
  emulator::run_grid(blocks, threads, shared_bytes, [&] { kernel(arguments...); });
}

}  // namespace metaformer::gpu
