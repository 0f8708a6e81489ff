#pragma once
// RMS normalisation (Zhang and Sennrich 2019) with gradients, the fastest way that a device and type have.

#include <torch/types.h>

namespace metaformer {

// x / sqrt(mean x^2 + epsilon) * gain over the last dimension d; gain_d: [d]. Statistics in float32 or wider, and the
// result in the wider type of x and gain_d. On the CPU in float32 by rms_norm_kernel.h, whose gradients do not depend
// on the number of threads; else the library's.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& gain_d, double epsilon);

// The parts of a node of the graph that contains the norm. On the CPU in float32, contiguous; r: rows of x.
struct RmsNormed {
  torch::Tensor y, factor_r;
};
RmsNormed normalise_by_rms(const torch::Tensor& x, const torch::Tensor& gain_d, double epsilon);

struct RmsNormGradients {
  torch::Tensor dx, dgain_d;
};
RmsNormGradients rms_norm_gradients(const torch::Tensor& x, const torch::Tensor& gain_d, const torch::Tensor& factor_r,
                                    const torch::Tensor& dy);

}  // namespace metaformer
