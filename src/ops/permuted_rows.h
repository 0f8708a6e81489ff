#pragma once
// Vectors put into other orders and back, forward and backward by copying rows.

#include <torch/types.h>

namespace metaformer {

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

}  // namespace metaformer
