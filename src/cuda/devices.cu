#include <cuda_runtime_api.h>

#include "cuda/devices.h"
#include "cuda/metric_attention.h"

namespace metaformer::cuda {

namespace {

__global__ void probe_kernel() {}

// A kernel can be loaded on the current device exactly when its code was compiled for (or can be translated to) it.
bool kernels_load() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess;
}

}  // namespace

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
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    cudaSetDevice(i);
    found.list.push_back({.name = properties.name,
                          .major = properties.major,
                          .minor = properties.minor,
                          .memory = properties.totalGlobalMem,
                          .runs_our_kernels = kernels_load()});
  }
  if (count > 0) cudaSetDevice(0);
  cudaGetLastError();
  return found;
}

MetricDevice metric_kernel_device() { return MetricDevice::cuda; }

}  // namespace metaformer::cuda
