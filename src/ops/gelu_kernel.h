#pragma once
// The Gaussian error linear unit (Hendrycks, Gimpel 2016) and its slope on the CPU, in one pass.
//
//   y = x F(x),  slope = F(x) + x f(x)      F, f: distribution and density of the standard normal
//
// Both need one exponential, exp(-x^2 / 2): F is that times a polynomial in 1 / (1 + c |x|). Backward is then one
// product; the library's backward computes an error function and an exponential again.

#include <cstdint>

namespace metaformer {

// Within 2e-6 of max(|value|, 0.1); y within 1e-5 of itself down to 1e-30. At infinities the limits; NaN stays NaN.
void gelu_with_slope(const float* x, float* y, float* slope, std::int64_t count);

// The same of bfloat16 (the upper halves of floats), rounded to nearest even.
void gelu_with_slope(const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slope, std::int64_t count);

}  // namespace metaformer
