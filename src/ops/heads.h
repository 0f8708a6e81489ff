#pragma once
// Between the model's width and its heads.

#include <torch/types.h>

#include <array>
#include <cmath>

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

// Uninitialised [b, n, c, k] that lies as [b, c, n, k], so that merging heads costs nothing; of `tokens`, c.
inline torch::Tensor empty_by_token(const torch::Tensor& like_bnck, std::int64_t tokens) {
  return torch::empty({like_bnck.size(0), tokens, like_bnck.size(1), like_bnck.size(3)}, like_bnck.options())
      .transpose(1, 2);
}
inline torch::Tensor empty_by_token(const torch::Tensor& like_bnck) {
  return empty_by_token(like_bnck, like_bnck.size(2));
}

// p_bnck W_nkj for every head, as one batched product of n matrices; a view of [n, b, c, j].
inline torch::Tensor per_head_product(const torch::Tensor& p_bnck, const torch::Tensor& w_nkj) {
  const auto batch = p_bnck.size(0), context = p_bnck.size(2);
  const auto rows_nrk = p_bnck.transpose(0, 1).reshape({p_bnck.size(1), batch * context, p_bnck.size(3)});
  return torch::bmm(rows_nrk, w_nkj.to(rows_nrk.scalar_type())).unflatten(1, {batch, context}).transpose(0, 1);
}

// Forms of heads, [n, k, k] or diagonals [n, k], each times the number of its head.
inline torch::Tensor scaled_forms(const torch::Tensor& form, const torch::Tensor& factor_n) {
  return form * (form.dim() == 3 ? factor_n.view({-1, 1, 1}) : factor_n.unsqueeze(1));
}

// The same, each with the Frobenius norm of the identity, sqrt(k): what is left of them is their direction.
inline torch::Tensor with_identity_norm(const torch::Tensor& form) {
  const double norm = std::sqrt(static_cast<double>(form.size(-1)));
  return scaled_forms(form, norm / form.flatten(1).norm(2, 1));
}

}  // namespace metaformer
