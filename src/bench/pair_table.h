#pragma once
// The published metric kernel's algorithm, for comparison of time and memory: a table of one product per pair of tokens
// and pair of features, times the packed metric.

#include <torch/types.h>

namespace metaformer {

// Bytes of the table: b n c (c + 1)/2 k (k + 1)/2 elements.
double pair_table_bytes(std::int64_t batch, std::int64_t heads, std::int64_t context, std::int64_t head_width,
                        std::int64_t element_bytes);

// r_bnce = p M p^T, unscaled (with the corrected formula), M packed [n, k (k + 1)/2] by rows of its lower triangle.
torch::Tensor pair_table_scores(const torch::Tensor& p_bnck, const torch::Tensor& packed_nl);

}  // namespace metaformer
