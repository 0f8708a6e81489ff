#include "ops/device_graph.h"

#include <dlfcn.h>

#include <filesystem>

namespace metaformer {

namespace {

constexpr const char* library_name = "libmetaformer_cuda_graph.so";

// Beside the program where it was built, in its library folder where it was installed.
void* open_library() {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto* place : {".", "lib", "../lib/metaformer", ".."})
    if (void* library = dlopen((folder / place / library_name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

}  // namespace

std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device, std::string& problem) {
  static void* const library = open_library();
  if (library == nullptr) {
    const char* error = dlerror();
    problem = error != nullptr ? error : std::string(library_name) + " cannot be loaded";
    return nullptr;
  }
  using Maker = DeviceGraph* (*)(int);
  const auto make = reinterpret_cast<Maker>(dlsym(library, "metaformer_make_cuda_graph"));
  if (make == nullptr) {
    problem = std::string(library_name) + " is of another version";
    return nullptr;
  }
  return std::unique_ptr<DeviceGraph>(make(device.index()));
}

}  // namespace metaformer
