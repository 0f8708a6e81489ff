#pragma once
// Linear layers and matrix products.

#include <torch/types.h>

#include "ops/layer.h"

namespace metaformer {

// Whether this machine multiplies matrices correctly: MKL does not promise that for the kernels that base/platform.h
// makes it choose. Tests small products of whole numbers, whose results are exact in any order of summation; about a
// millisecond.
bool products_are_right();

// Throws Error (exit code 1) if they are not; the message says how to leave the choice of kernels to MKL.
void require_right_products();

// x W^T + b, [..., o], for x [..., i]; bias_o undefined: no bias. In training on the CPU, in float32 or under autocast
// in bfloat16, it is one node of the graph in place of LibTorch's five. Its results are those of
// torch::nn::functional::linear byte for byte, except that bfloat16 is rounded once, after the bias. So it is in
// training on a GPU under autocast, if the weight has a copy (HalfWeights); the gradients of weights and biases are
// then not rounded to 16 bits. Otherwise it calls that function, without gradients on the copy.
torch::Tensor linear_product(const torch::Tensor& x, const torch::Tensor& weight_oi, const torch::Tensor& bias_o);

// y = x W^T + b.
class LinearImpl : public Layer {
 public:
  // `init` is for the weight; a bias starts at 0. `hidden_matrices` (ParameterSpec): the number of projections of
  // hidden vectors in the output; 0 for logits.
  LinearImpl(std::int64_t inputs, std::int64_t outputs, bool bias, Init init = Init::normal(),
             std::int64_t hidden_matrices = 1) {
    weight_oi_ = add_parameter("weight", {outputs, inputs},
                               {.init = init, .decay = Decay::matrices, .hidden_matrices = hidden_matrices});
    if (bias) bias_o_ = add_parameter("bias", outputs, {.init = Init::zeros()});
  }

  torch::Tensor forward(const torch::Tensor& x) { return linear_product(x, weight_oi_, bias_o_); }

  const torch::Tensor& weight() const { return weight_oi_; }
  const torch::Tensor& bias() const { return bias_o_; }  // undefined: none

 private:
  torch::Tensor weight_oi_, bias_o_;
};
TORCH_MODULE(Linear);

}  // namespace metaformer
