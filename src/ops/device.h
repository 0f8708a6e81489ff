#pragma once
// Where tensors live, and what memory that costs.

#include <torch/types.h>

#include <string>

namespace metaformer {

// "auto" (CUDA when there is a device that runs this build, else the CPU), "cpu", "cuda" or "cuda:N". Loads LibTorch's
// CUDA part on demand, so that nothing of it costs time where it is not used; must be called before other torch work.
// Errors (exit code 2) say why a device cannot be used.
torch::Device select_device(const std::string& name);

// "AMD EPYC 9654" or "cuda:0 NVIDIA H200".
std::string device_description(torch::Device device);

// Until the device has done all that it was given.
void wait_for(torch::Device device);

// Highest memory use of the process so far: allocated on the device for CUDA, resident on the host for the CPU.
std::int64_t peak_memory_bytes(torch::Device device);

// Whether memory could not be had, on the host or a device. LibTorch's CPU allocator reports that as a plain error.
bool is_out_of_memory(const std::exception& error);

// What such an error says of it: "16.0 GiB more cannot be had".
std::string describe_out_of_memory(const std::exception& error);

// The first line of an error, without LibTorch's stack trace.
std::string first_line(const std::exception& error);

}  // namespace metaformer
