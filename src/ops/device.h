#pragma once
// Devices, their streams, and graphs of recorded work.

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace metaformer {

// The current cudaStream_t of the tensor's device; nullptr on the CPU.
inline void* stream_of(const torch::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(tensor.device()).native_handle();
}

// "auto" (CUDA if there is a device that runs this build, else the CPU), "cpu", "cuda" or "cuda:N". Loads LibTorch's
// CUDA part on demand, so that other runs do not spend time on it; must be called before other torch work. Errors (exit
// code 2) give the reason why a device cannot be used.
torch::Device select_device(const std::string& name);

// "AMD EPYC 9654" or "cuda:0 NVIDIA H200".
std::string device_description(torch::Device device);

// Waits until the device has finished all its work.
void wait_for(torch::Device device);

// Highest memory use of the process so far: allocated on the device for CUDA, resident on the host for the CPU.
std::int64_t peak_memory_bytes(torch::Device device);

// Whether an allocation failed, on the host or a device. LibTorch's CPU allocator reports that as a plain error.
bool is_out_of_memory(const std::exception& error);

// A short description of such an error: "16.0 GiB more could not be allocated".
std::string describe_out_of_memory(const std::exception& error);

// The first line of an error, without LibTorch's stack trace.
std::string first_line(const std::exception& error);

// Device work that is recorded once and then started as a whole.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Records the operations that `work` starts on the graph's device, without executing them. Tensors created in `work`
  // keep their memory, which every replay overwrites. Throws c10::Error if an operation cannot be recorded, or if
  // `work` started none on that device; the work can then be done without the graph.
  virtual void capture(const std::function<void()>& work) = 0;

  virtual void replay() = 0;
};

// A CUDA graph for work on `device`; nullptr if there is none, with the reason in `problem`. Loads the library beside
// the program with the code that needs LibTorch's CUDA part.
std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device, std::string& problem);

}  // namespace metaformer
