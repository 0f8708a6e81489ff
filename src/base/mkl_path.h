#pragma once
// Which kernels LibTorch's MKL multiplies matrices with on this CPU.
//
// MKL asks one of its functions whether the CPU is of its maker. On any other it stays with AVX2, which on CPUs that
// have AVX-512 is half as fast as it could be. This file brings a function of the same name, which the dynamic linker
// prefers to the library's: it says yes on every x86 CPU with AVX2 and FMA, and MKL then goes by the CPU's own feature
// flags. METAFORMER_MKL=own leaves the question to MKL.

#include <string>

namespace metaformer {

enum class MklPath {
  absent,  // this LibTorch has no MKL, or hides that function: its products are as they come
  own,     // MKL decides for itself: METAFORMER_MKL=own, or a CPU without AVX2
  widest,  // MKL takes the widest instructions this CPU has
};

// Throws Error (exit code 2) when METAFORMER_MKL says something else.
MklPath mkl_path();

// In a few words, for people.
std::string describe(MklPath path);

}  // namespace metaformer
