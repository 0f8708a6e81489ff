#pragma once
// The update of weights by the CUDA kernels of cuda/gradient_norm.h and cuda/adam.h.

#include <torch/types.h>

#include <optional>
#include <variant>
#include <vector>

namespace metaformer {

// Whether the kernels support the device and type of the weights.
inline bool has_fused_update(const torch::Tensor& values) {
  return values.is_cuda() && values.scalar_type() == torch::kFloat;
}

// All tensors are float scalars on the device of the gradients, and the host waits for none.
struct FusedNorm {
  std::optional<torch::Tensor> divisor;    // of the gradients
  std::optional<torch::Tensor> found_inf;  // becomes 1 if the gradients are not finite, else 0
  torch::Tensor factor;                    // becomes min(1, limit / norm), or 1 if that is not finite; may be undefined
  double limit = 0;
};

// The norm of the gradients, one contiguous tensor, divided by the divisor: float.
torch::Tensor fused_gradient_norm(const torch::Tensor& gradients, const FusedNorm& norm);

// Contiguous float tensors of one length, and for `copies` one in bfloat16 or float16, or undefined: the copy of the
// values that the update writes as well (ops/autocast.h).
struct FusedAdamRange {
  torch::Tensor values, gradients, first_moments, second_moments;
  torch::Tensor copies = {};
  double weight_decay = 0;
  double rate = 1;  // factor of the learning rate
};

struct FusedAdam {
  bool decoupled = true;  // AdamW; else Adam with its decay in the gradient
  std::vector<double> betas = {};
  double epsilon = 0;
  std::optional<torch::Tensor> factor, divisor, found_inf;  // of the gradients; as GradientScale (train/optim)
};

// One step, which is counted in `steps`, a float scalar on the device. Counts the write to values without copies
// (count_write).
void fused_adam(const FusedAdam& adam, const std::vector<FusedAdamRange>& ranges, const torch::Tensor& steps,
                const std::variant<double, torch::Tensor>& learning_rate);

}  // namespace metaformer
