// The part of ops/device.h that needs LibTorch's CUDA library. It is a separate library, which the program loads only
// on a CUDA device. It does not use at::cuda::CUDAGraph: after a failed recording that leaves its memory pool and the
// generator in the state of a recording, so that the work could not continue without the graph.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/device.h"

namespace metaformer {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(c10::DeviceIndex device) : device_(device) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Does not wait for a replay, whose sums of several processes may wait for one that has ended: CUDA destroys a graph
  // that runs at the end of its run.
  ~CudaGraph() override {
    if (executable_ == nullptr) return;
    const c10::cuda::CUDAGuard on_device(device_);
    cudaGraphExecDestroy(executable_);
    allocator::releasePool(device_, pool_);
  }

  // Records on a stream of its own, because the default stream cannot be recorded.
  void capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAGuard on_device(device_);
    c10::cuda::device_synchronize();
    allocator::emptyCache();  // else memory reserved by the warm-up stays beside that of the graph
    const auto stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_);
    const c10::cuda::CUDAStreamGuard on_stream(stream);
    auto* const graph = record(stream, work);
    const auto made = cudaGraphInstantiateWithFlags(&executable_, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    cudaGraphDestroy(graph);
    if (made == cudaSuccess) return;
    executable_ = nullptr;
    allocator::releasePool(device_, pool_);
    C10_CUDA_CHECK(made);
  }

  void replay() override {
    const c10::cuda::CUDAGuard on_device(device_);
    C10_CUDA_CHECK(cudaGraphLaunch(executable_, c10::cuda::getCurrentCUDAStream(device_)));
  }

 private:
  // `work` gets its memory from a pool of its own. Afterwards, also if the recording fails, the stream no longer
  // records and the allocator uses its usual memory. The pool of a failed recording is released.
  cudaGraph_t record(c10::cuda::CUDAStream stream, const std::function<void()>& work) {
    pool_ = at::cuda::graph_pool_handle();
    allocator::beginAllocateToPool(device_, pool_, [stream](cudaStream_t asking) { return asking == stream.stream(); });
    cudaGraph_t graph = nullptr;
    const auto end = [&] {
      const auto error = cudaStreamEndCapture(stream, &graph);
      allocator::endAllocateToPool(device_, pool_);
      return error;
    };
    try {
      C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
      work();
    } catch (...) {
      end();
      forget(graph);
      throw;
    }
    const auto error = end();
    std::size_t nodes = 0;
    if (error == cudaSuccess && graph != nullptr) cudaGraphGetNodes(graph, nullptr, &nodes);
    if (nodes > 0) return graph;
    forget(graph);
    C10_CUDA_CHECK(error);
    TORCH_CHECK(false, "nothing was recorded: the work ran on another device or stream");
  }

  void forget(cudaGraph_t graph) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    allocator::releasePool(device_, pool_);
    cudaGetLastError();  // clears the error for the next caller
  }

  c10::DeviceIndex device_;
  c10::MempoolId_t pool_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

}  // namespace metaformer

extern "C" __attribute__((visibility("default"))) metaformer::DeviceGraph* metaformer_make_cuda_graph(int device) {
  return new metaformer::CudaGraph(static_cast<c10::DeviceIndex>(device));
}
