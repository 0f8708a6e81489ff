#pragma once
// The stream that a tensor's device works on.

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

namespace metaformer {

// The current cudaStream_t of the tensor's device; nullptr on the CPU.
inline void* stream_of(const torch::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(tensor.device()).native_handle();
}

}  // namespace metaformer
