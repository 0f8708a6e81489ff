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

// [b, c, 3 n k] -> three views [b, n, c, k].
inline std::array<torch::Tensor, 3> thirds_bnck(const torch::Tensor& x_bcd, std::int64_t heads) {
  const auto parts = x_bcd.chunk(3, 2);
  return {split_heads(parts[0], heads), split_heads(parts[1], heads), split_heads(parts[2], heads)};
}

// [b, n, c, k] -> [b, c, n k].
inline torch::Tensor merge_heads(const torch::Tensor& t_bnck) { return t_bnck.transpose(1, 2).flatten(2); }

// Uninitialised [b, n, c, k] in the memory layout [b, c, n, k], so that merging heads costs nothing. c: `tokens`; n:
// `heads`.
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

// Makes the features of each vector contiguous, as the CPU kernels require.
inline torch::Tensor with_features_together(const torch::Tensor& x_bnck) {
  return x_bnck.stride(3) == 1 ? x_bnck : x_bnck.contiguous();
}

// The rows of one head of a tensor with contiguous features; empty if the tensor is undefined.
inline HeadRows rows_of(const torch::Tensor& x_bnck, std::int64_t batch, std::int64_t head) {
  if (!x_bnck.defined()) return {};
  auto* data = static_cast<char*>(x_bnck.data_ptr());
  const auto offset = batch * x_bnck.stride(0) + head * x_bnck.stride(1);
  return {data + offset * x_bnck.element_size(), x_bnck.stride(2), x_bnck.size(3)};
}

// Uninitialised float32 [b, n, c], for one number per token and head.
inline torch::Tensor empty_per_row(const torch::Tensor& like_bnck) {
  return torch::empty(like_bnck.sizes().slice(0, 3), like_bnck.options().dtype(torch::kFloat));
}

struct HostAttentionOptions {
  bool causal = false;      // then the queries are the last of the keys
  std::int64_t window = 0;  // a query sees only keys at a distance below this; 0: all keys
  // Integers; -1: padding. Both undefined: one segment.
  torch::Tensor query_segment_bc, key_segment_be;
  double scale = 1;
  double dropout = 0;  // of the weights, in training
};

// A term that is added to the scores before they are scaled: q_i . key_(c - 1 - i + j) for query i of c and key j.
// `key_nlk` has a row for every such index, or if causal for those of visible keys. Both undefined: no term.
struct HostDistances {
  torch::Tensor q_bnck, key_nlk;
};

// Whether host_attention can compute it: float32 or bfloat16 on the CPU, at most longest_host_attention keys, and
// enough queries that rearranging the keys for the kernel costs less than their scores.
bool can_attend_on_host(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnej);
bool can_attend_on_host(const torch::Tensor& projected_bcd);

// softmax(scale q k^T) v in the inputs' type, with sums in float32; a token that sees nothing gets zeros. Keeps its
// inputs, the result and a number per token and head for backward, nothing of size c^2. Equal inputs and draws give
// equal bits, whatever the number of threads. If values and keys are the same tensor, it is loaded once.
//
// There may be fewer heads of keys or of values than of queries; each of them then serves the same number of
// consecutive query heads.
//
// sink_n, if defined, is for each head the scaled score of one more key in the softmax, whose value is 0.
torch::Tensor host_attention(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnej,
                             const HostAttentionOptions& options, Pass& pass, const HostDistances& distances = {},
                             const torch::Tensor& sink_n = {});

// The same for queries, keys and values in one projection, [b, c, 3 n k]; returns [b, c, n k]. It is one node of the
// graph, without the views that split the projection and the copy that joins its gradient.
torch::Tensor host_attention(const torch::Tensor& projected_bcd, std::int64_t heads,
                             const HostAttentionOptions& options, Pass& pass, const torch::Tensor& sink_n = {});

// x_bnek with each head repeated consecutively, so that there are `heads` of them; x_bnek itself if it has so many.
inline torch::Tensor with_heads(const torch::Tensor& x_bnek, std::int64_t heads) {
  return x_bnek.size(1) == heads ? x_bnek : x_bnek.repeat_interleave(heads / x_bnek.size(1), 1);
}

}  // namespace metaformer
