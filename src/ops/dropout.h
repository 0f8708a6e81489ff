#pragma once
// Dropout (Srivastava et al. 2014), the fastest way that a device and type have.

#include <torch/torch.h>

namespace metaformer {

// A seed from the library's generator: what is drawn by it repeats after torch::manual_seed.
std::int64_t draw_seed();

// x with a share of its entries, in [0, 1), set to 0 and the others divided by 1 - share. On the CPU in float32 and
// bfloat16 by dropout_kernel.h; else the library's, whose generator draws one number after the other on a CPU.
torch::Tensor dropout(const torch::Tensor& x, double share);

}  // namespace metaformer
