#pragma once
// A stand-in for the parts of CUDA and of LibTorch's CUDA library that ops/cuda_graph uses: two devices that compute
// nothing, but count streams, recordings and memory pools.

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <set>

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorStreamCaptureInvalidated = 901 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal };
constexpr unsigned cudaGraphInstantiateFlagAutoFreeOnLaunch = 1;

struct FakeStream {
  int device = 0;
  bool records = false, is_invalid = false;
  std::size_t nodes = 0;  // recorded so far
};
struct FakeGraph {
  std::size_t nodes = 0;
};
using cudaStream_t = FakeStream*;
using cudaGraph_t = FakeGraph*;
using cudaGraphExec_t = FakeGraph*;

namespace metaformer::stand_in {

struct Machine {
  int device = 0;  // the current device
  std::map<int, FakeStream> usual, of_pool;
  std::map<int, cudaStream_t> current;
  std::size_t graphs = 0, executables = 0;       // existing ones
  std::set<c10::MempoolId_t> open_pools, pools;  // pools that take allocations; all pools that are held
  std::uint64_t last_pool = 0;
  std::map<int, std::size_t> done;  // number of operations that each device has done
  bool refuses_executables = false;

  cudaStream_t stream(int of) {
    auto& found = current[of];
    if (found == nullptr) usual[of].device = of, found = &usual[of];
    return found;
  }

  // Starts work on the current device, like an operator.
  void start_work() {
    auto* on = stream(device);
    on->records ? ++on->nodes : ++done[device];
  }

  bool is_as_before() const {
    for (const auto& [of, on] : of_pool)
      if (on.records) return false;
    return open_pools.empty() && graphs == 0 && device == 0;
  }
};

inline Machine machine;

}  // namespace metaformer::stand_in

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  *stream = {.device = stream->device, .records = true};
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto recorded = *stream;
  *stream = {.device = stream->device};
  if (!recorded.records || recorded.is_invalid) return cudaErrorStreamCaptureInvalidated;
  ++metaformer::stand_in::machine.graphs;
  *graph = new FakeGraph{recorded.nodes};
  return cudaSuccess;
}
inline cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void*, std::size_t* nodes) {
  *nodes = graph->nodes;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned) {
  if (metaformer::stand_in::machine.refuses_executables) return cudaErrorInvalidValue;
  ++metaformer::stand_in::machine.executables;
  *executable = new FakeGraph(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  --metaformer::stand_in::machine.graphs;
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  --metaformer::stand_in::machine.executables;
  delete executable;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  metaformer::stand_in::machine.done[stream->device] += executable->nodes;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

#define C10_CUDA_CHECK(error) TORCH_CHECK((error) == cudaSuccess, "CUDA error ", static_cast<int>(error))

namespace c10::cuda {

inline void device_synchronize() {}

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_;
};

inline CUDAStream getStreamFromPool(bool, DeviceIndex device) {
  auto& stream = metaformer::stand_in::machine.of_pool[device];
  stream.device = device;
  return CUDAStream(&stream);
}
inline CUDAStream getCurrentCUDAStream(DeviceIndex device) {
  return CUDAStream(metaformer::stand_in::machine.stream(device));
}

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex device) { metaformer::stand_in::machine.device = device; }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() { metaformer::stand_in::machine.device = before_; }

 private:
  int before_ = metaformer::stand_in::machine.device;
};

class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream stream)
      : device_(stream.stream()->device), before_(metaformer::stand_in::machine.stream(device_)) {
    metaformer::stand_in::machine.current[device_] = stream;
  }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  ~CUDAStreamGuard() { metaformer::stand_in::machine.current[device_] = before_; }

 private:
  int device_;
  cudaStream_t before_;
};

namespace CUDACachingAllocator {

inline void emptyCache() {}
inline void beginAllocateToPool(DeviceIndex, MempoolId_t pool, const std::function<bool(cudaStream_t)>&) {
  metaformer::stand_in::machine.open_pools.insert(pool);
  metaformer::stand_in::machine.pools.insert(pool);
}
inline void endAllocateToPool(DeviceIndex, MempoolId_t pool) { metaformer::stand_in::machine.open_pools.erase(pool); }
inline void releasePool(DeviceIndex, MempoolId_t pool) { metaformer::stand_in::machine.pools.erase(pool); }

}  // namespace CUDACachingAllocator

}  // namespace c10::cuda

namespace at::cuda {

inline c10::MempoolId_t graph_pool_handle() { return {0, ++metaformer::stand_in::machine.last_pool}; }

}  // namespace at::cuda
