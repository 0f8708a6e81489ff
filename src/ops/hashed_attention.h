#pragma once
// LSH attention on the CPU, by hashed_attention_kernel.h, with gradients.

#include <torch/types.h>

namespace metaformer {

struct HashedAttentionOptions {
  bool causal = false, same_bucket = false;
  std::int64_t chunk = 0;
  torch::Tensor segment_bc;  // integers; -1: padding; undefined: all one segment
};

// Whether it can be computed that way: float32 or bfloat16 on the CPU, chunks of whole vectors.
bool can_attend_hashed(const torch::Tensor& q_bnck, const HashedAttentionOptions& options);

// t_bnck in the type of the values, computed in float32; a token that sees nothing gets its own value, padding zeros.
// Keeps its inputs, the result and a number per token and head, nothing for pairs of tokens. Equal inputs give equal
// bits, whatever the number of threads.
torch::Tensor hashed_attention(const torch::Tensor& q_bnck, const torch::Tensor& value_bnck,
                               const torch::Tensor& bucket_bnrc, const HashedAttentionOptions& options);

}  // namespace metaformer
