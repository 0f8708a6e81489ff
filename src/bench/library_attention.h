#pragma once
// LibTorch's scaled dot product attention by one of its backends, whatever it would choose.

#include <ATen/SDPBackend.h>
#include <torch/types.h>

#include <array>

namespace metaformer {

struct LibraryBackend {
  const char* name;
  at::SDPBackend backend;
  bool keeps_pairs;  // has the matrix of scores in memory
};
inline constexpr std::array library_backends = {
    LibraryBackend{"library_cudnn", at::SDPBackend::cudnn_attention, false},
    LibraryBackend{"library_flash", at::SDPBackend::flash_attention, false},
    LibraryBackend{"library_memory_efficient", at::SDPBackend::efficient_attention, false},
    LibraryBackend{"library_math", at::SDPBackend::math, true}};

struct LibraryInputs {
  torch::Tensor q_bnck, k_bnck, value_bnck;
  bool causal = true;
  double scale = 1;
};

// Whether the backend exists for this device, type and shape; with gradients if an input asks for them.
bool library_can(const LibraryBackend& backend, const LibraryInputs& in);

// t_bnck. Throws c10::Error where the backend cannot do it.
torch::Tensor library_attention(const LibraryBackend& backend, const LibraryInputs& in);

}  // namespace metaformer
