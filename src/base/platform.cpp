#include "base/platform.h"

#include <dlfcn.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

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

namespace {

constexpr const char* symbol = "mkl_serv_intel_cpu_true";

std::string_view mkl_env() {
  const char* value = std::getenv("METAFORMER_MKL");
  return value != nullptr ? value : "";
}

bool takes_widest() {
#ifdef __x86_64__  // the builtin exists only there
  return mkl_env() != "own" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

// MKL's own function of that name, which the dynamic linker finds after this program's.
auto own_of_mkl() { return reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, symbol)); }

}  // namespace

// MKL calls this once, before its first product.
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  if (takes_widest()) return 1;
  const auto own = own_of_mkl();
  return own != nullptr ? own() : 0;
}

std::string matrix_products() {
  if (!mkl_env().empty() && mkl_env() != "own")
    throw Error(ExitCode::usage, "METAFORMER_MKL=" + std::string(mkl_env()) + ": expected own, or nothing");
  const bool is_ours = dlsym(RTLD_DEFAULT, symbol) == reinterpret_cast<void*>(&mkl_serv_intel_cpu_true);
  if (!is_ours || own_of_mkl() == nullptr) return "not MKL's, or out of reach; as LibTorch has them";
  return takes_widest() ? "MKL, with the widest instructions of this CPU" : "MKL, as it decides for itself";
}

void* open_own_library(const std::string& name) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto* place : {".", "lib", "../lib/metaformer", ".."})
    if (void* library = dlopen((folder / place / name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

}  // namespace metaformer
