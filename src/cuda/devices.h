#pragma once
// The CUDA devices of this machine, asked of the CUDA runtime. No torch.

#include <cstdint>
#include <string>
#include <vector>

namespace metaformer::cuda {

struct Device {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::uint64_t memory = 0;  // bytes
  bool runs_our_kernels = false;
};

struct Devices {
  bool compiled = false;     // this executable contains CUDA code
  std::string problem;       // why there are none, when there are none
  std::vector<Device> list;  // by their numbers
};

// Never throws: a machine without a GPU or a driver is an answer.
Devices find_devices();

}  // namespace metaformer::cuda
