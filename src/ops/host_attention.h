#pragma once
// Attention on the CPU, by host_attention_kernel.h, with gradients.

#include <torch/types.h>

#include "ops/pass.h"

namespace metaformer {

struct HostAttentionOptions {
  bool causal = false;      // the queries are the last of the keys
  std::int64_t window = 0;  // if causal: the newest keys that a query sees, itself included; 0: all
  // Integers; -1: padding; undefined, both: all one segment.
  torch::Tensor query_segment_bc, key_segment_be;
  double scale = 1;
  double dropout = 0;  // of the weights, in training
};

// Added to the scores before they are scaled, for query i of c and key j: q_i . key_(c - 1 - i + j). A row for every
// such sum, or if causal for those of visible keys. Nothing: both undefined.
struct HostDistances {
  torch::Tensor q_bnck, key_nlk;
};

// Whether it can be computed that way: float32 or bfloat16 on the CPU, and not so few queries that packing the keys
// would cost more than their scores.
bool can_attend_on_host(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnej);
bool can_attend_on_host(const torch::Tensor& projected_bcd);

// softmax(scale q k^T) v in the inputs' type, sums in float32; a token that sees nothing gets zeros. Keeps its inputs,
// the result and a number per token and head, nothing of size c^2. Equal inputs and draws give equal bits, whatever the
// number of threads. Values that are the very tensor of the keys are loaded once.
torch::Tensor host_attention(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnej,
                             const HostAttentionOptions& options, Pass& pass, const HostDistances& distances = {});

// The same of queries, keys and values as one projection holds them, [b, c, 3 n k], giving [b, c, n k]: one node of the
// graph, without the views that take the projection apart and the copy that joins its gradient.
torch::Tensor host_attention(const torch::Tensor& projected_bcd, std::int64_t heads,
                             const HostAttentionOptions& options, Pass& pass);

}  // namespace metaformer
