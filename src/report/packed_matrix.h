#pragma once
// Matrices of a page, small enough for many heads.

#include <torch/types.h>

#include <nlohmann/json.hpp>

namespace metaformer {

// {"rows", "columns", "low", "high", "bits", "layout", "data"}: values as whole numbers from 0 (low) to 2^bits - 1
// (high), little-endian, base64. bits: 16, an error of at most (high - low) / 131070, or 8 for more than 96 x 96 cells.
// layout: "full"; "lower", the lower triangle with the diagonal, for what a causal mask leaves; "symmetric", the same
// for a matrix that equals its transpose. Null for a matrix that is undefined or not finite.
nlohmann::ordered_json pack(const torch::Tensor& matrix_ij, bool causal = false);

}  // namespace metaformer
