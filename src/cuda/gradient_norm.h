#pragma once
// The norm of a step's gradients on the GPU, and what clipping makes of it: pointers in, pointers out, no tensors.

#include <cstdint>

namespace metaformer::cuda {

// norm = the square root of the sum of squares / *divisor. Up to 262,144 threads sum their squares in float32, so that
// few are added one after another, and the sums of the blocks are added in double. Results do not change from run to
// run, and do not depend on the device.
struct GradientNorm {
  const float* gradients = nullptr;
  std::int64_t count = 0;
  float* partial = nullptr;        // gradient_norm_parts() floats of workspace
  const float* divisor = nullptr;  // the scale of the loss; null: 1. All pointers are to device memory
  float* norm = nullptr;
  float* found_inf = nullptr;  // becomes 1 if the sum is not finite, else 0; null: not needed
  float* factor = nullptr;     // becomes limit / norm, at most 1; 1 if norm is not finite; null: not needed
  double limit = 0;
};

std::int64_t gradient_norm_parts(std::int64_t count);

// Runs on `stream` (a cudaStream_t) of the current device and returns at once. Errors (exit code 1): what CUDA says of
// the launch.
void gradient_norm(const GradientNorm& arguments, void* stream);

}  // namespace metaformer::cuda
