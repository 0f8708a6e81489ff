#pragma once
// A norm outside the graph: the parts of a node that contains one. On the CPU in float32, contiguous, with the
// results of the graph's own nodes byte for byte.

#include <torch/types.h>

#include "config/block_config.h"

namespace metaformer {

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

}  // namespace metaformer
