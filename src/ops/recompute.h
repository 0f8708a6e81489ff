#pragma once
// Recomputation in backward.

#include <functional>

#include "ops/kernel.h"

namespace metaformer {

// Parts of a pass without kept intermediate results: backward recomputes them (Chen, Xu, Zhang, Guestrin 2016).

// The gradients of `inputs` for the gradient dy of y, by torch::autograd::grad(). The gradient of an input that needs
// none, or on which y does not depend, is undefined. Nothing is computed for it.
Tensors gradients_of(const torch::Tensor& y, const Tensors& inputs, const torch::Tensor& dy);

// The settings of autocast on a device at the time of construction.
struct OperatorSettings {
  explicit OperatorSettings(torch::Device of_device);
  torch::DeviceType device;
  bool casts;
  torch::ScalarType type;
};

// While it lives, operators run with these settings in this thread. Weights are cast for every operator, because a cast
// made without recording gradients must not be reused where they are recorded.
class RepeatScope {
 public:
  enum class Gradients { ignored, recorded };
  RepeatScope(const OperatorSettings& settings, Gradients gradients);
  RepeatScope(const RepeatScope&) = delete;
  RepeatScope& operator=(const RepeatScope&) = delete;
  ~RepeatScope();

 private:
  torch::AutoGradMode gradients_;
  OperatorSettings before_;
  bool cached_before_;
};

using Recomputed = std::function<torch::Tensor(const torch::Tensor& x)>;

// y = f(inputs[0]), recomputed with `settings`, and the gradients of all inputs; f also reads the other inputs.
// inputs[0] is a leaf.
struct Repeated {
  torch::Tensor y;
  Tensors gradients;
};
Repeated repeat(const OperatorSettings& settings, const Tensors& inputs, const torch::Tensor& dy,
                c10::function_ref<torch::Tensor(const torch::Tensor& x)> f);

// f(x), for which only x is kept. `weights`: all other tensors that f reads and that may have gradients; those without
// gradients cost backward nothing. f must be deterministic, draw nothing, and live as long as the graph.
torch::Tensor recomputed(const Recomputed& f, const torch::Tensor& x, const Tensors& weights);

// The same for a function of independent rows, x_rd: computes `chunks` parts of nearly the same number of rows, one
// after the other, and joins the results.
torch::Tensor recomputed_in_chunks(const Recomputed& f, const torch::Tensor& x_rd, const Tensors& weights,
                                   std::int64_t chunks);

}  // namespace metaformer
