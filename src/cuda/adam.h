#pragma once
// An update of all weights by Adam or AdamW on the GPU: pointers in, pointers out, no tensors.

#include <cstdint>

#include "cuda/row_element.h"

namespace metaformer::cuda {

// Weights with the same decay and factor of the learning rate. The arrays have `count` elements. copies: the new
// values, rounded; null: none are stored.
struct AdamRange {
  float* values = nullptr;
  const float* gradients = nullptr;
  float *first_moments = nullptr, *second_moments = nullptr;
  std::uint16_t* copies = nullptr;
  std::int64_t count = 0;
  float weight_decay = 0;
  float rate = 1;  // factor of the learning rate
};

// With g = gradient x *factor / *divisor, r = learning rate x range's rate, t = *steps + 1:
//   decoupled: w <- w - r decay w; else g <- g + decay w
//   m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  w <- w - r / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) +
//   epsilon)
// and *steps <- t. If *found_inf is 1, nothing changes, and nothing is copied. Each array is read once and written
// once; gradients stay as they are. In float32 with the same roundings as LibTorch's fused operators, except for the
// powers: these are exact, of betas rounded to float32.
struct AdamStep {
  bool decoupled = true;                       // AdamW
  RowElement copy_element = RowElement::bf16;  // or fp16
  float beta1 = 0, beta2 = 0, epsilon = 0;
  float* steps = nullptr;                // in device memory, as all numbers behind pointers
  const float* learning_rate = nullptr;  // null: given_rate
  float given_rate = 0;
  const float *factor = nullptr, *divisor = nullptr;  // null: 1
  const float* found_inf = nullptr;                   // null: 0
  float* constants = nullptr;                         // three floats of workspace
};

// Runs on `stream` (a cudaStream_t) of the current device and returns at once: one kernel for `steps`, and one for
// every 32 of the `count` ranges. Errors (exit code 1): copies in fp32, and what CUDA says of the launch.
void adam_step(const AdamStep& arguments, const AdamRange* ranges, std::int64_t count, void* stream);

}  // namespace metaformer::cuda
