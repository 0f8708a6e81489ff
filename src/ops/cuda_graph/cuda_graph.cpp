// The part of ops/device_graph.h that needs LibTorch's CUDA library. It is a separate library, which the program loads
// only on a CUDA device.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/device_graph.h"

namespace metaformer {

namespace {

class CudaGraph : public DeviceGraph {
 public:
  // On a stream of its own: the default one cannot be recorded.
  void capture(const std::function<void()>& work) override {
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    graph_.capture_begin();
    try {
      work();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const c10::Error&) {
        // It ends the recording and reports what the work did; the work's own error says more.
      }
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

}  // namespace metaformer

extern "C" __attribute__((visibility("default"))) metaformer::DeviceGraph* metaformer_make_cuda_graph() {
  return new metaformer::CudaGraph;
}
