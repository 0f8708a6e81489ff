#pragma once
// Response normalisation (Johnson and Zhang 2015).

#include <torch/types.h>

namespace metaformer {

// x / sqrt(1 + |x|^2), of the vectors of the last dimension.
inline torch::Tensor response_normalised(const torch::Tensor& x) {
  return x * (1 + x.square().sum(-1, /*keepdim=*/true)).rsqrt();
}

}  // namespace metaformer
