#pragma once
// Linear layers and matrix products.

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/dropout.h"
#include "ops/layer.h"
#include "ops/pass.h"

namespace metaformer {

// Whether this machine multiplies matrices right: what base/platform.h asks of MKL is not something its makers promise.

// Small products of whole numbers, whose results are exact in any order of summation; about a millisecond.
bool products_are_right();

// Throws Error (exit code 1), saying how to leave the choice to MKL, when they are not; as mkl_path() does.
void require_right_products();

// x W^T + b as one node of the graph, which costs a training step of a small model less time than the library's five.

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

// y = x W^T + b.
class LinearImpl : public Layer {
 public:
  // `init`: of the weight; a bias starts at 0. `hidden_matrices` (ParameterSpec): how many projections of hidden
  // vectors the outputs are; 0 for logits.
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

// The end of a branch, its last linear layer, dropout and the residual connection: as one node of the graph, and as a
// part of larger nodes.

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
