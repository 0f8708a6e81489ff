#pragma once
// Dropout on the GPU: pointers in, pointers out, no tensors.

#include <cstdint>

#include "base/dropout_places.h"
#include "cuda/row_element.h"

namespace metaformer::cuda {

// y_i = 0 with the given probability, else x_i / (1 - probability), for `count` contiguous elements. Which entries
// become 0 is what DropoutMask (cpu/dropout.h) says of their places for the seed
// Rng::with_key(*key).bits(number) (base/random.h).
struct Dropout {
  RowElement element = RowElement::fp32;
  const void* x = nullptr;
  void* y = nullptr;
  std::int64_t count = 0;
  double probability = 0;             // in [0, 1)
  const std::int64_t* key = nullptr;  // in device memory, read by the kernel
  std::uint64_t number = 0;
  DropoutPlaces places;  // `starts` in device memory
};

// Runs on `stream` (a cudaStream_t) of the current device and returns at once. Errors (exit code 1): what CUDA says of
// the launch.
void dropout(const Dropout& arguments, void* stream);

}  // namespace metaformer::cuda
