#pragma once
// The instruction sets that kernels of attention are compiled for.

namespace metaformer {

// Results differ between them by rounding.
enum class VectorCode { plain, avx2, avx512, avx512_bf16 };

// The widest that this CPU has.
inline VectorCode widest_vector_code() {
  static const auto widest = [] {
#ifdef __x86_64__
    if (__builtin_cpu_supports("x86-64-v4"))
      return __builtin_cpu_supports("avx512bf16") ? VectorCode::avx512_bf16 : VectorCode::avx512;
    if (__builtin_cpu_supports("x86-64-v3")) return VectorCode::avx2;
#endif
    return VectorCode::plain;
  }();
  return widest;
}

}  // namespace metaformer
