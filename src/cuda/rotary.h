#pragma once
// The rotation of rotary positions (Su et al. 2021, equation 34) on the GPU: pointers in, pointers out, no tensors.

#include <cstdint>

#include "cuda/row_element.h"

namespace metaformer::cuda {

// Elements from one text, head or token to the next.
struct HeadStrides {
  std::int64_t text = 0, head = 0, token = 0;
};

// Features l and l + pairs (l < pairs) of each row of `width` features are the two coordinates of a point, which is
// turned by the angle whose cosine and sine are those of its token; the features from 2 pairs on are copied. Computed
// in float32, and rounded once.
struct Rotary {
  RowElement element = RowElement::fp32;
  std::int64_t texts = 0, heads = 0, tokens = 0;
  int width = 0, pairs = 0;
  const void* x = nullptr;  // the features of a row are contiguous; y may be x
  void* y = nullptr;
  HeadStrides x_strides, y_strides;
  const float *cosines = nullptr, *sines = nullptr;  // [tokens, pairs]
  float direction = 1;                               // -1: back
};

// Runs on `stream` (a cudaStream_t) of the current device and returns at once. Errors (exit code 1): more rows than a
// grid holds, or what CUDA says of the launch.
void rotary(const Rotary& arguments, void* stream);

}  // namespace metaformer::cuda
