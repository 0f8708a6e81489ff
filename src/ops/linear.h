#pragma once
// y = x W^T + b.

#include "ops/layer.h"
#include "ops/linear_product.h"

namespace metaformer {

class LinearImpl : public Layer {
 public:
  // `init`: of the weight; a bias starts at 0. `hidden_matrices` (ParameterSpec): how many projections of hidden
  // vectors the outputs are; 0 for logits.
  LinearImpl(std::int64_t inputs, std::int64_t outputs, bool bias, Init init = Init::normal(),
             std::int64_t hidden_matrices = 1) {
    weight_oi_ = add_parameter("weight", torch::zeros({outputs, inputs}),
                               {.init = init, .decay = Decay::matrices, .hidden_matrices = hidden_matrices});
    if (bias) bias_o_ = add_parameter("bias", torch::zeros(outputs), {.init = Init::zeros()});
  }

  torch::Tensor forward(const torch::Tensor& x) { return linear_product(x, weight_oi_, bias_o_); }

  const torch::Tensor& weight() const { return weight_oi_; }
  const torch::Tensor& bias() const { return bias_o_; }  // undefined: none

 private:
  torch::Tensor weight_oi_, bias_o_;
};
TORCH_MODULE(Linear);

}  // namespace metaformer
