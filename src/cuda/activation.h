#pragma once
// The activation of a feed-forward branch with the bias before it, as one kernel each way: pointers in, pointers out,
// no tensors. Of every row, for u = x + bias:
//
//   y = f(u), or of a gated row u = [g | v], y = f(g) v
//
// Backward: dx = f'(u) dy, or [f'(g) v dy | f(g) dy];  dbias = sum dx over all rows. Values and sums are in float32,
// and rounded where they are stored.

#include <cstdint>

#include "base/activation_function.h"
#include "cuda/row_element.h"

namespace metaformer::cuda {

constexpr std::int64_t most_activation_width = 1 << 22;  // of x

struct Activation {
  ActivationFunction function{};
  bool gated = false;
  RowElement element = RowElement::fp32;  // of x, y and their gradients
  std::int64_t rows = 0;
  int width = 0;                // of y; x is twice as wide if gated
  const void* x = nullptr;      // contiguous rows, as all here
  const float* bias = nullptr;  // as wide as x; none: 0
  void* y = nullptr;
};

struct ActivationBackward {
  Activation forward;  // without y
  const void* dy = nullptr;
  void* dx = nullptr;        // none: not stored
  float* dbias = nullptr;    // as wide as x; none: not stored
  float* partial = nullptr;  // work space of activation_partial_sums() floats; none without dbias
};

// The size of the partial sums of dbias, which backward adds in a fixed order. `width`: of x.
std::int64_t activation_partial_sums(std::int64_t rows, std::int64_t width);

// Run on `stream` (a cudaStream_t) of the current device and return at once. Equal inputs give equal bits. Errors (exit
// code 1): what CUDA says of a launch.
void activation(const Activation& arguments, void* stream);
void activation_backward(const ActivationBackward& arguments, void* stream);

}  // namespace metaformer::cuda
