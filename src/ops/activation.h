#pragma once
// Activations and gated products with gradients, the fastest way that a device and type have. On the CPU in float32 and
// bfloat16 by cpu/activation.h where a gradient will be asked for; else by the library's operators.

#include <torch/types.h>

#include "config/model_config.h"
#include "cpu/activation.h"

namespace metaformer {

// As the kernels know it.
ActivationFunction function_of(const ActivationConfig& f);

// f(x) of every element; any shape.
torch::Tensor activate(const ActivationConfig& f, const torch::Tensor& x);

// f(gate) * up for x = [..., gate | up], both of the same width h (Shazeer 2020): [..., h].
torch::Tensor gate(const ActivationConfig& f, const torch::Tensor& x);

}  // namespace metaformer
