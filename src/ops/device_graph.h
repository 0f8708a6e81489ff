#pragma once
// Device work that is recorded once and then started as a whole.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>

namespace metaformer {

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
