#pragma once
// Facts about this program, its process and its CPU.

#include <string>
#include <string_view>

namespace metaformer {

// How this executable was built.
struct BuildInfo {
  std::string_view version;
  std::string_view commit;  // of the source tree, or "unknown" outside a checkout
  bool dirty;               // the sources differ from that commit
  std::string_view compiler;
  std::string_view build_type;
  std::string_view source_configs;  // the source tree's configs folder
  bool cuda;                        // CUDA code is compiled in
};

const BuildInfo& build_info();

// Records the time when the program started, only once: called before main, or else by static initialisation.
void note_program_start();

// Counts from note_program_start and not from the start of the process: a shell may have set up and built for half an
// hour before it became this program.
double seconds_since_program_start();

// A description of the matrix product kernels that LibTorch's MKL uses on this CPU, for people.
//
// MKL calls one of its functions to ask whether the CPU is an Intel one. On any other it uses AVX2, which on CPUs that
// have AVX-512 is half as fast as possible. The source of this unit defines a function of the same name, which the
// dynamic linker prefers to the library's. It returns true on every x86 CPU with AVX2 and FMA, and MKL then uses the
// CPU's feature flags. METAFORMER_MKL=own leaves the decision to MKL; another value is an Error (exit code 2).
std::string matrix_products();

// Loads a library of this program on demand: from the folder of the executable in a build, from the library folder of
// an installation. nullptr: it is missing or cannot be loaded (dlerror() gives the reason).
void* open_own_library(const std::string& name);

}  // namespace metaformer
