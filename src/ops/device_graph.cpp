#include "ops/device_graph.h"

#include <dlfcn.h>

#include "ops/own_library.h"

namespace metaformer {

namespace {

constexpr const char* library_name = "libmetaformer_cuda_graph.so";

}  // namespace

std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device, std::string& problem) {
  static void* const library = open_own_library(library_name);
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
