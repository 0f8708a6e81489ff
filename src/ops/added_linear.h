#pragma once
// The end of a branch, its last linear layer, dropout and the residual connection: as one node of the graph, and as a
// part of larger nodes.

#include <torch/autograd.h>

#include "ops/dropout.h"
#include "ops/linear_product.h"
#include "ops/pass.h"

namespace metaformer {

// Whether this pass can have that node: it trains on the CPU, in float32 or under bfloat16's autocast.
bool can_add_linear(const torch::Tensor& x_bcd, const torch::Tensor& t_bci, const torch::Tensor& weight_di);

// x + dropout(t W^T + b), byte for byte what the parts compute one by one (bias_d undefined: none). Draws once where
// there is dropout.
torch::Tensor add_linear(const torch::Tensor& x_bcd, const torch::Tensor& t_bci, const torch::Tensor& weight_di,
                         const torch::Tensor& bias_d, double dropout, Pass& pass);

// The same outside the graph (rows r).
struct BranchEnd {
  torch::Tensor weight_di;  // weight_of_products()
  HostMask mask;            // of this pass

  // Draws once where this pass drops.
  static BranchEnd of(const torch::Tensor& weight_di, double dropout, Pass& pass);

  // t_ri in the weight's type.
  torch::Tensor add_to(const torch::Tensor& x_bcd, const torch::Tensor& t_ri,
                       const std::optional<torch::Tensor>& bias_d) const;
  // Those of t, of the weight and of the bias; the gradient of x is dout itself.
  LinearGradients gradients(const torch::Tensor& dout_bcd, const torch::Tensor& t_ri, const LinearNeeds& needs) const;

  void keep_in(torch::autograd::AutogradContext& context) const;  // but for the weight
  static BranchEnd kept_in(torch::autograd::AutogradContext& context, const torch::Tensor& weight_di);
};

}  // namespace metaformer
