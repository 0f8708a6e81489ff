#pragma once
// The residual sum at the end of a branch and the norm before the next one, as one kernel each way: pointers in,
// pointers out, no tensors. Of every row:
//
//   x' = x + dropout(y),  z = f (x' - m),  n = gain z + bias,  f = 1 / sqrt(mean((x' - m)^2) + epsilon)
//
// where m is the mean of x' (layer norm) or 0 (RMS norm). Backward, for h = gain dn:
//
//   dx = dx' + f (h - mean(h z) z - mean(h)),  without mean(h) for RMS norm;  dy = dropout's gradient for dx
//   dgain = sum dn z,  dbias = sum dn          over all rows
//
// Sums are in float32. x' has the bits that the dropout kernel and a sum in float32 give.

#include <cstdint>

#include "base/dropout_places.h"
#include "cuda/row_element.h"

namespace metaformer::cuda {

constexpr int most_norm_width = 4096;

struct ResidualNorm {
  std::int64_t rows = 0;
  int width = 0;  // 1 to most_norm_width
  RowElement y_element = RowElement::fp32, n_element = RowElement::fp32;
  const float* x = nullptr;  // [rows, width], as all rows here, contiguous; none: 0
  const void* y = nullptr;
  // The mask is that of Dropout (cuda/dropout.h). A run of the places has whole rows.
  double probability = 0;             // in [0, 1)
  const std::int64_t* key = nullptr;  // in device memory, read by the kernels; none without dropout
  std::uint64_t number = 0;
  DropoutPlaces places;
  bool centred = false;  // layer norm
  float epsilon = 0;
  const float *gain = nullptr, *bias = nullptr;  // [width]; bias: none
  float* sum = nullptr;                          // x'
  void* n = nullptr;
  float *mean = nullptr, *factor = nullptr;  // m and f of every row; RMS norm has no mean
};

struct ResidualNormBackward {
  ResidualNorm forward;  // reads gain, sum, mean and factor, and not x, y, bias and n
  const void* dn = nullptr;
  const float* dsum = nullptr;               // the gradient of x' without that of n; none: 0
  float* dx = nullptr;                       // none: not stored
  void* dy = nullptr;                        // likewise; without dropout it is dx in the type of y
  float *dgain = nullptr, *dbias = nullptr;  // [width]; none: not stored
  float* partial = nullptr;  // work space of residual_norm_partial_sums() floats; none without dgain and dbias
};

// The size of the partial sums of dgain and dbias, which backward adds in a fixed order.
std::int64_t residual_norm_partial_sums(std::int64_t rows, int width);

// Run on `stream` (a cudaStream_t) of the current device and return at once. Equal inputs give equal bits. Errors
// (exit code 1): a width that there is no kernel for, or what CUDA says of a launch.
void residual_norm(const ResidualNorm& arguments, void* stream);
void residual_norm_backward(const ResidualNormBackward& arguments, void* stream);

}  // namespace metaformer::cuda
