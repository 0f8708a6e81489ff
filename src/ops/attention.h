#pragma once
// Attention on the CPU as an autograd node, and heads as views of rows.

#include <torch/types.h>

#include <array>

#include "cpu/attention.h"
#include "ops/pass.h"

namespace metaformer {

// [b, c, n k] -> [b, n, c, k], a view.
inline torch::Tensor split_heads(const torch::Tensor& x_bcd, std::int64_t heads) {
  return x_bcd.unflatten(2, {heads, -1}).transpose(1, 2);
}

// [b, c, 3 n k] -> three of [b, n, c, k], views.
inline std::array<torch::Tensor, 3> thirds_bnck(const torch::Tensor& x_bcd, std::int64_t heads) {
  const auto parts = x_bcd.chunk(3, 2);
  return {split_heads(parts[0], heads), split_heads(parts[1], heads), split_heads(parts[2], heads)};
}

// [b, n, c, k] -> [b, c, n k].
inline torch::Tensor merge_heads(const torch::Tensor& t_bnck) { return t_bnck.transpose(1, 2).flatten(2); }

// Uninitialised [b, n, c, k] that lies as [b, c, n, k], so that merging heads costs nothing; of `tokens`, c, and
// `heads`, n.
inline torch::Tensor empty_by_token(const torch::Tensor& like_bnck, std::int64_t tokens, std::int64_t heads) {
  return torch::empty({like_bnck.size(0), tokens, heads, like_bnck.size(3)}, like_bnck.options()).transpose(1, 2);
}
inline torch::Tensor empty_by_token(const torch::Tensor& like_bnck) {
  return empty_by_token(like_bnck, like_bnck.size(2), like_bnck.size(1));
}

// p_bnck W_nkj for every head, as one batched product of n matrices; a view of [n, b, c, j].
inline torch::Tensor per_head_product(const torch::Tensor& p_bnck, const torch::Tensor& w_nkj) {
  const auto batch = p_bnck.size(0), context = p_bnck.size(2);
  const auto rows_nrk = p_bnck.transpose(0, 1).reshape({p_bnck.size(1), batch * context, p_bnck.size(3)});
  return torch::bmm(rows_nrk, w_nkj.to(rows_nrk.scalar_type())).unflatten(1, {batch, context}).transpose(0, 1);
}

// As the CPU kernels take heads.
inline torch::Tensor with_features_together(const torch::Tensor& x_bnck) {
  return x_bnck.stride(3) == 1 ? x_bnck : x_bnck.contiguous();
}

// The rows of a head of a tensor with contiguous features; nothing if it is undefined.
inline HeadRows rows_of(const torch::Tensor& x_bnck, std::int64_t batch, std::int64_t head) {
  if (!x_bnck.defined()) return {};
  auto* data = static_cast<char*>(x_bnck.data_ptr());
  const auto offset = batch * x_bnck.stride(0) + head * x_bnck.stride(1);
  return {data + offset * x_bnck.element_size(), x_bnck.stride(2), x_bnck.size(3)};
}

// [b, n, c], float32: for what a kernel keeps of every vector.
inline torch::Tensor empty_per_row(const torch::Tensor& like_bnck) {
  return torch::empty(like_bnck.sizes().slice(0, 3), like_bnck.options().dtype(torch::kFloat));
}

struct HostAttentionOptions {
  bool causal = false;      // the queries are the last of the keys
  std::int64_t window = 0;  // a query sees only keys that stand less than so many from it; 0: all
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

// Heads of keys or of values may be fewer than those of queries, each then serving as many in a row.
//
// sink_n, where it is defined: stands in the softmax of each head like the scaled score of one more key, of value 0.
//
// softmax(scale q k^T) v in the inputs' type, sums in float32; a token that sees nothing gets zeros. Keeps its inputs,
// the result and a number per token and head, nothing of size c^2. Equal inputs and draws give equal bits, whatever the
// number of threads. Values that are the very tensor of the keys are loaded once.
torch::Tensor host_attention(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnej,
                             const HostAttentionOptions& options, Pass& pass, const HostDistances& distances = {},
                             const torch::Tensor& sink_n = {});

// The same of queries, keys and values as one projection holds them, [b, c, 3 n k], giving [b, c, n k]: one node of the
// graph, without the views that take the projection apart and the copy that joins its gradient.
torch::Tensor host_attention(const torch::Tensor& projected_bcd, std::int64_t heads,
                             const HostAttentionOptions& options, Pass& pass, const torch::Tensor& sink_n = {});

// x_bnek with each head as often in a row as it takes to have `heads` of them; x itself where it has.
inline torch::Tensor with_heads(const torch::Tensor& x_bnek, std::int64_t heads) {
  return x_bnek.size(1) == heads ? x_bnek : x_bnek.repeat_interleave(heads / x_bnek.size(1), 1);
}

}  // namespace metaformer
