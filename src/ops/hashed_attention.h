#pragma once
// LSH attention's kernel as an autograd node.

#include <torch/types.h>

namespace metaformer {

// Vectors put into other orders and back, forward and backward by copying rows.

// r orders of c tokens, one behind the other.
struct Orders {
  torch::Tensor token_bnrc;  // which token stands at each place of an order
  torch::Tensor place_bnrc;  // where each token stands in each order, 0 ... r c - 1
};

// From the smallest key on; no two keys of an order may be equal.
Orders sort_orders(const torch::Tensor& key_bnrc);

// x_bnck -> [b, n, r c, k], all orders one behind the other.
torch::Tensor in_orders(const torch::Tensor& x_bnck, const Orders& orders);

// The reverse for what differs from order to order: [b, n, r c, k] -> [b, n, r, c, k].
torch::Tensor out_of_orders(const torch::Tensor& x_bnsk, const Orders& orders);

// LSH attention on the CPU, by cpu/hashed_attention.h, with gradients.
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
