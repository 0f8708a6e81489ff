#pragma once
// The CUDA devices of this machine, asked of the CUDA runtime, and the GPUs for which this executable has code.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer::cuda {

// Whether one of `architectures`, as CMAKE_CUDA_ARCHITECTURES has them ("80-real;90-virtual"), runs on a device of
// compute capability major.minor: machine code on the same major and no lower minor, PTX on all that are not older.
constexpr bool has_code_for(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const auto entry = architectures.substr(0, architectures.find(';'));
    architectures.remove_prefix(std::min(architectures.size(), entry.size() + 1));
    int number = 0;
    for (const char digit : entry.substr(0, entry.find('-'))) number = 10 * number + (digit - '0');
    const bool has_machine_code = !entry.ends_with("-virtual"), has_ptx = !entry.ends_with("-real");
    if (has_machine_code && number / 10 == major && number % 10 <= minor) return true;
    if (has_ptx && number <= 10 * major + minor) return true;
  }
  return false;
}

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
