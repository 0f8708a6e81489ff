#pragma once
// The loss of predicted tokens and its gradient on the GPU: pointers in, pointers out, no tensors.

#include <cstdint>

#include "cuda/row_element.h"

namespace metaformer::cuda {

// loss = the sum of -sum_v q_v log softmax(x)_v over all rows x with a target, where q spreads `smoothing` evenly over
// all v and gives the rest to the target; gradient = *factor (softmax(x) - q), in the type of the logits. A row with a
// negative target has neither. If a target is not below `width`, the loss and the row's gradient are NaN.
//
// Results do not change from run to run. Softmax is computed in float32, and the sum of the losses in double from
// float32 sums of up to eight rows.
struct CrossEntropy {
  RowElement element = RowElement::fp32;
  const void* logits = nullptr;
  std::int64_t rows = 0, width = 0, stride = 0;  // width: below 2^31; stride: elements from row to row
  const std::int64_t* targets = nullptr;
  double smoothing = 0;           // in [0, 1]
  float* loss = nullptr;          // null: not needed
  float* partial = nullptr;       // cross_entropy_parts() floats of workspace; null without a loss
  void* gradient = nullptr;       // rows of `width` elements without gaps; null: not needed
  const float* factor = nullptr;  // in device memory; null without a gradient
  // If *computed equals *factor, `gradient` has been computed, and nothing is done. Null: it has not.
  const float* computed = nullptr;
};

std::int64_t cross_entropy_parts(std::int64_t rows, std::int64_t width);

// Runs on `stream` (a cudaStream_t) of the current device and returns at once. Errors (exit code 1): what CUDA says of
// the launch.
void cross_entropy(const CrossEntropy& arguments, void* stream);

}  // namespace metaformer::cuda
