#pragma once
// Hashed n-grams of tokens.

#include <torch/types.h>

namespace metaformer {

// The bucket, in 0 ... buckets - 1, that the n-gram which ends at each token of ids_bc is hashed to: a function of its
// n ids only, where tokens before the first (and, given segments, those of other segments) count as one special id.
torch::Tensor ngram_buckets(const torch::Tensor& ids_bc, std::int64_t n, std::int64_t buckets,
                            const torch::Tensor& segments_bc = {});

}  // namespace metaformer
