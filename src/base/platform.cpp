#include "base/platform.h"

#include <dlfcn.h>

#include <cstdlib>
#include <ctime>
#include <string_view>

#include "base/error.h"

namespace metaformer {

static constinit timespec start = {};

void note_program_start() {
  if (start.tv_sec == 0 && start.tv_nsec == 0) clock_gettime(CLOCK_MONOTONIC, &start);
}

[[maybe_unused]] static const bool is_noted = (note_program_start(), true);

double seconds_since_program_start() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec - start.tv_sec) + static_cast<double>(now.tv_nsec - start.tv_nsec) * 1e-9;
}

}  // namespace metaformer

namespace {

constexpr const char* question = "mkl_serv_intel_cpu_true";

std::string_view wish() {
  const char* value = std::getenv("METAFORMER_MKL");
  return value != nullptr ? value : "";
}

bool left_to_mkl() { return wish() == "own"; }

bool has_avx2() {
#ifdef __x86_64__  // the builtin exists only there
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

using Answer = int (*)();

// MKL's function of that name, which the dynamic linker finds after ours.
Answer mkls_own() { return reinterpret_cast<Answer>(dlsym(RTLD_NEXT, question)); }

}  // namespace

// MKL calls this once, before its first product.
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  if (!left_to_mkl() && has_avx2()) return 1;
  const auto own = mkls_own();
  return own != nullptr ? own() : 0;
}

namespace metaformer {

MklPath mkl_path() {
  if (!wish().empty() && wish() != "own")
    throw Error(ExitCode::usage, "METAFORMER_MKL=" + std::string(wish()) + ": expected own, or nothing");
  const bool is_asked = dlsym(RTLD_DEFAULT, question) == reinterpret_cast<void*>(&mkl_serv_intel_cpu_true);
  if (!is_asked || mkls_own() == nullptr) return MklPath::absent;
  return left_to_mkl() || !has_avx2() ? MklPath::own : MklPath::widest;
}

std::string describe(MklPath path) {
  switch (path) {
    case MklPath::absent:
      return "not MKL's, or out of reach; as LibTorch has them";
    case MklPath::own:
      return "MKL, as it decides for itself";
    case MklPath::widest:
      return "MKL, with the widest instructions of this CPU";
  }
  return "";
}

}  // namespace metaformer
