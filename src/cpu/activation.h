#pragma once
// Activations and their slopes on the CPU, in one pass from one exponential. Backward is then one product; the
// library's backward computes an error function, a hyperbolic tangent or a sigmoid again.
//
// Elements are float, or bfloat16 as the upper halves of floats, rounded to nearest even. Values and slopes are within
// 2e-6 of max(|value|, 0.1), of a silu for any beta; at infinities they are the limits; NaN stays NaN.

#include <cstdint>

#include "base/activation_function.h"

namespace metaformer {

// y = f(x), slope = f'(x).
void activate(ActivationFunction f, const float* x, float* y, float* slope, std::int64_t count);
void activate(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slope, std::int64_t count);

// y = f(gate) up of every row of x = [gate | up], both `width` elements; slopes = [f'(gate) up | f(gate)].
void gate(ActivationFunction f, const float* x, float* y, float* slopes, std::int64_t rows, std::int64_t width);
void gate(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slopes, std::int64_t rows,
          std::int64_t width);

}  // namespace metaformer
