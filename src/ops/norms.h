#pragma once
// Norms as autograd nodes.

#include <torch/types.h>

#include "config/model_config.h"

namespace metaformer {

// A norm outside the graph: the parts of a node that contains one. On the CPU in float32, contiguous, with the
// results of the graph's own nodes byte for byte.
struct Normalised {
  torch::Tensor y;
  torch::Tensor mean, scale;  // of every row, for backward; RMS norms have no mean
};
Normalised normalise(const NormConfig& config, const torch::Tensor& x, const torch::Tensor& gain_d,
                     const std::optional<torch::Tensor>& bias_d);

struct NormGradients {
  torch::Tensor dx, dgain_d, dbias_d;  // the last one undefined: no bias
};
NormGradients norm_gradients(const torch::Tensor& dy, const torch::Tensor& x, const Normalised& normalised,
                             const torch::Tensor& gain_d, const std::optional<torch::Tensor>& bias_d);

// RMS normalisation (Zhang and Sennrich 2019) with gradients, the fastest way that a device and type have.

// x / sqrt(mean x^2 + epsilon) * gain over the last dimension d; gain_d: [d]. Statistics in float32 or wider, and the
// result in the wider type of x and gain_d. On the CPU in float32 by cpu/rms_norm.h, whose gradients do not depend
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
