#pragma once
// The loss of predicted tokens by the CUDA kernel of cuda/cross_entropy.h.

#include <torch/types.h>

#include <functional>

namespace metaformer {

// Whether the kernel supports the device, type and number of the logits, [..., v].
bool has_fused_cross_entropy(const torch::Tensor& logits);

// As cross_entropy_sum (ops/functional.h), for logits in float32, bfloat16 or float16 with any stride between rows; the
// gradient has their type. A target that is not below v makes the loss NaN, because the host does not wait for an
// error. `expected`: a float scalar on the device; if backward starts from this number, the gradient has been computed
// along with the loss. Undefined, or if backward starts from another number: backward computes it.
torch::Tensor fused_cross_entropy_sum(const torch::Tensor& logits_tv, const torch::Tensor& targets_t, double smoothing,
                                      const torch::Tensor& expected = {});

// While it lives, losses that this thread computes expect that backward starts from the scalar that `gradient` returns.
class ExpectedLossGradient {
 public:
  explicit ExpectedLossGradient(std::function<torch::Tensor()> gradient);
  ExpectedLossGradient(const ExpectedLossGradient&) = delete;
  ExpectedLossGradient& operator=(const ExpectedLossGradient&) = delete;
  ~ExpectedLossGradient();

  // For logits whose gradient is needed and that are too large for the caches; otherwise undefined: to read them again
  // costs less than to compute the scalar.
  static torch::Tensor of(const torch::Tensor& logits_tv);

 private:
  std::function<torch::Tensor()> gradient_;
  const ExpectedLossGradient* outer_;
};

}  // namespace metaformer
