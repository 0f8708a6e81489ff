#pragma once
// Dropout (Srivastava et al. 2014).

#include <torch/torch.h>

#include "ops/pass.h"

namespace metaformer {

// In training x with entries set to 0, each with the given probability in [0, 1), and the others divided by 1 -
// probability; otherwise x itself. The mask is that of dropout_kernel.h on every device, and backward draws it again
// in place of keeping it.
torch::Tensor dropout(const torch::Tensor& x, double probability, Pass& pass);

// Outside the graph, for x on the CPU in float32 or bfloat16: the mask of a seed; of gradients, too.
torch::Tensor drop_on_host(const torch::Tensor& x, double probability, std::uint64_t seed);

}  // namespace metaformer
