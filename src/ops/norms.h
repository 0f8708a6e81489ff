#pragma once
// RMS normalisation with gradients (Zhang and Sennrich 2019).

#include <torch/types.h>

namespace metaformer {

// x / sqrt(mean x^2 + epsilon) * gain over the last dimension d; gain_d: [d]. Statistics in float32 or wider, and the
// result in the wider type of x and gain_d. On the CPU in float32 by cpu/rms_norm.h, whose gradients do not depend
// on the number of threads; else the library's.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& gain_d, double epsilon);

}  // namespace metaformer
