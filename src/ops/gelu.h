#pragma once
// GELU with gradients, the fastest way that a device and type have.

#include <torch/torch.h>

namespace metaformer {

// x F(x), F: the standard normal's distribution function. On the CPU in float32 and bfloat16 by gelu_kernel.h where a
// gradient will be asked for; else the library's.
torch::Tensor gelu(const torch::Tensor& x);

}  // namespace metaformer
