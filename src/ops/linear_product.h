#pragma once
// x W^T + b as one node of the graph, which costs a training step of a small model less time than the library's five.

#include <torch/types.h>

namespace metaformer {

// x [..., i], weight_oi, bias_o (undefined: none): [..., o]. On the CPU in float32, or under autocast in bfloat16, with
// the results of torch::nn::functional::linear byte for byte, but that bfloat16 is rounded once, after the bias;
// elsewhere that function.
torch::Tensor linear_product(const torch::Tensor& x, const torch::Tensor& weight_oi, const torch::Tensor& bias_o);

// The parts of a node that contains a linear layer, where it can (rows r).

// Whether this pass can have such a node: it trains on the CPU, in float32 or under bfloat16's autocast. Which tensors
// have gradients makes no difference, so that frozen weights compute what others would.
bool can_use_linear_parts(const torch::Tensor& x, const torch::Tensor& weight_oi);

// The weight outside the graph, in the type of this pass's products; cast once for all passes of a step.
torch::Tensor weight_of_products(const torch::Tensor& weight_oi);

// In the weight's type, which x_ri has.
torch::Tensor linear_of_rows(const torch::Tensor& x_ri, const torch::Tensor& weight_oi,
                             const std::optional<torch::Tensor>& bias_o);

struct LinearGradients {
  torch::Tensor dx_ri;                // in the weight's type
  torch::Tensor dweight_oi, dbias_o;  // in float32
};

// Which of them are computed; the others stay undefined.
struct LinearNeeds {
  bool x = true, weight = true, bias = true;
};
LinearGradients linear_gradients(const torch::Tensor& dy_ro, const torch::Tensor& x_ri, const torch::Tensor& weight_oi,
                                 const LinearNeeds& needs);

}  // namespace metaformer
