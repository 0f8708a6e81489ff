#pragma once
// RMS normalisation of rows on the CPU in float32, and its gradients, each in one pass over a row that is in the cache.
// The library computes the backward pass by a dozen operators, several times slower than that of its layer norm.

#include <cstdint>

namespace metaformer {

// Computes for every row the factor f = 1 / sqrt(mean x^2 + epsilon) and y = f x gain. `factors`: [rows], or none.
void normalise_by_rms(const float* x, const float* gain, float* y, float* factors, std::int64_t rows,
                      std::int64_t width, float epsilon);

struct RmsNormRows {
  const float* x = nullptr;        // [rows, width]
  const float* gain = nullptr;     // [width]
  const float* factors = nullptr;  // [rows]
  const float* dy = nullptr;       // [rows, width]
  std::int64_t rows = 0, width = 0;
};

// dx = f (g - x f^2 mean(g x)) with g = dy gain, of every row; adds the rows' dy x f to gain_gradient[width].
void rms_norm_gradients(const RmsNormRows& rows, float* dx, float* gain_gradient);

}  // namespace metaformer
