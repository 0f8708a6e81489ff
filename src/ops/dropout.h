#pragma once
// Dropout (Srivastava et al. 2014).

#include <torch/torch.h>

#include "ops/pass.h"

namespace metaformer {

// In training x with entries set to 0, each with the given probability in [0, 1), and the others divided by 1 -
// probability; otherwise x itself. The mask is that of dropout_kernel.h on every device, and backward draws it again
// in place of keeping it.
torch::Tensor dropout(const torch::Tensor& x, double probability, Pass& pass);

}  // namespace metaformer
