#pragma once
// Heads of tensors as the CPU kernels take them.

#include <torch/types.h>

#include "ops/head_attention.h"

namespace metaformer {

inline torch::Tensor with_features_together(const torch::Tensor& x_bnck) {
  return x_bnck.stride(3) == 1 ? x_bnck : x_bnck.contiguous();
}

// Of a tensor with its features together; nothing of an undefined one.
inline HeadRows rows_of(const torch::Tensor& x_bnck, std::int64_t batch, std::int64_t head) {
  if (!x_bnck.defined()) return {};
  auto* data = static_cast<char*>(x_bnck.data_ptr());
  const auto offset = batch * x_bnck.stride(0) + head * x_bnck.stride(1);
  return {data + offset * x_bnck.element_size(), x_bnck.stride(2), x_bnck.size(3)};
}

// [b, n, c]: for what a kernel keeps of every query.
inline torch::Tensor empty_log_sum(const torch::Tensor& q_bnck) {
  return torch::empty({q_bnck.size(0), q_bnck.size(1), q_bnck.size(2)}, torch::kFloat);
}

}  // namespace metaformer
