#pragma once
// Devices, their streams, and graphs of recorded work.

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace metaformer {

// A library of this program that it loads only when it is needed: beside the program where it was built, in its library
// folder where it was installed. nullptr: it is not there, or cannot be loaded (dlerror() says why).
void* open_own_library(const std::string& name);

// The current cudaStream_t of the tensor's device; nullptr on the CPU.
inline void* stream_of(const torch::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(tensor.device()).native_handle();
}

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

// The size from such an error: "16.0 GiB more could not be allocated".
std::string describe_out_of_memory(const std::exception& error);

// The first line of an error, without LibTorch's stack trace.
std::string first_line(const std::exception& error);

// Device work that is recorded once and then started as a whole.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Records what `work` starts on the graph's device; nothing of it is done yet. Tensors made in it keep their memory,
  // which every replay writes again. Throws c10::Error when some of the work cannot be recorded, or when none of it was
  // started there; the work can then be done without the graph.
  virtual void capture(const std::function<void()>& work) = 0;

  virtual void replay() = 0;
};

// A CUDA graph of work on `device`; nullptr, and why, where there is none. The code that needs LibTorch's CUDA part
// lies in a library beside the program, which is loaded here.
std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device, std::string& problem);

}  // namespace metaformer
