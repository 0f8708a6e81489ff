#pragma once
// The orthogonal factor of a matrix, nearly.

#include <torch/types.h>

namespace metaformer {

// Of each matrix U S V' of x_mrc about U V': the singular values end between 0.7 and 1.2 (those near 0 somewhere
// below). `iterations` of the quintic polynomial of Jordan et al. 2024, "Muon", after a division by the Frobenius norm;
// 0 stays 0. The products are in `type`, and so is the result. Cheaper where r <= c.
torch::Tensor orthogonalise(const torch::Tensor& x_mrc, std::int64_t iterations, torch::ScalarType type);

}  // namespace metaformer
