// The part of distributed/c10d_group.cpp that needs LibTorch's CUDA library and NCCL. It is a separate library, which
// the program loads only for tensors on a CUDA device.
//
// Sums may be recorded in a CUDA graph (train/step.h). LibTorch's watchdog does not watch recorded work, and asks after
// earlier work in a mode that does not disturb a recording.

// Without this macro the header is empty.
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" __attribute__((visibility("default"))) void metaformer_make_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
    c10::intrusive_ptr<c10d::Backend>& backend) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}
