#include <cuda_runtime_api.h>

#include "cuda/devices.h"

namespace metaformer::cuda {

// Makes no device current: that would take memory of it for a context.
Devices find_devices() {
  Devices found{.compiled = true, .problem = {}, .list = {}};
  int count = 0;
  if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    found.problem = cudaGetErrorString(error);
    cudaGetLastError();  // not for the next caller
    return found;
  }
  if (count == 0) found.problem = "no CUDA device";
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    // It has a place all the same, so that those behind it keep their numbers.
    if (const auto error = cudaGetDeviceProperties(&properties, i); error != cudaSuccess) {
      found.list.push_back({.name = std::string("unknown: ") + cudaGetErrorString(error)});
      continue;
    }
    found.list.push_back(
        {.name = properties.name,
         .major = properties.major,
         .minor = properties.minor,
         .memory = properties.totalGlobalMem,
         .runs_our_kernels = has_code_for(METAFORMER_CUDA_ARCHITECTURES, properties.major, properties.minor)});
  }
  cudaGetLastError();
  return found;
}

}  // namespace metaformer::cuda
