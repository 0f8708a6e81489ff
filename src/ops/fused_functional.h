#pragma once
// Functions of ops/functional.h by CUDA kernels (cuda/activation.h, cuda/rotary.h, cuda/embedding.h), with gradients.
// Equal inputs give equal bits, of gradients too.

#include <torch/types.h>

#include "base/activation_function.h"

namespace metaformer {

// Whether the kernels support the device, type and number of x, and the bias if it is defined.
bool has_fused_activation(const torch::Tensor& x, const torch::Tensor& bias);

// f(x + bias), or f(gate) * up for x + bias = [..., gate | up], in the type of x: float32, bfloat16 or float16. The
// bias is in float32; undefined: 0. Keeps x and computes it again in backward, which reads and writes less than slopes
// that are kept.
torch::Tensor fused_activation(ActivationFunction f, const torch::Tensor& x, const torch::Tensor& bias, bool gated);

// Whether the kernel supports the device, types and sizes.
bool has_fused_rotation(const torch::Tensor& x_bnck, const torch::Tensor& cos_cr, const torch::Tensor& sin_cr);

// rotate_pairs() in the type of x: float32, bfloat16 or float16; the angles are in float32. One kernel each way.
torch::Tensor fused_rotation(const torch::Tensor& x_bnck, const torch::Tensor& cos_cr, const torch::Tensor& sin_cr);

// Whether the kernels of the gradient support the device, types and sizes.
bool has_fused_embedding(const torch::Tensor& table_vd, const torch::Tensor& ids);

// embed() for a table in float32, whose gradient is added in the order of the tokens.
torch::Tensor fused_embedding(const torch::Tensor& table_vd, const torch::Tensor& ids);

}  // namespace metaformer
