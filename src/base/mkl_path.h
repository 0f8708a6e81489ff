#pragma once
// Decides which matrix product kernels LibTorch's MKL uses on this CPU.
//
// MKL calls one of its functions to ask whether the CPU is an Intel one. On any other it uses AVX2, which on CPUs that
// have AVX-512 is half as fast as possible. This file defines a function of the same name, which the dynamic linker
// prefers to the library's. It returns true on every x86 CPU with AVX2 and FMA, and MKL then uses the CPU's feature
// flags. METAFORMER_MKL=own leaves the decision to MKL.

#include <string>

namespace metaformer {

enum class MklPath {
  absent,  // this LibTorch has no MKL, or hides that function; its products are unchanged
  own,     // MKL decides: METAFORMER_MKL=own, or a CPU without AVX2
  widest,  // MKL uses the widest instructions of this CPU
};

// Throws Error (exit code 2) if METAFORMER_MKL has another value.
MklPath mkl_path();

// A short description for people.
std::string describe(MklPath path);

}  // namespace metaformer
