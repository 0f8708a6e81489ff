#pragma once
// Recomputation in backward.

#include <functional>

#include "ops/kernel.h"

namespace metaformer {

// Parts of a pass that keep none of what they compute: backward computes them again (Chen, Xu, Zhang, Guestrin 2016).

// The gradients of `inputs` for those of y, as torch::autograd::grad() finds them, where an input may have none: those
// are undefined, as are the gradients of inputs that y does not depend on. Nothing is computed for them.
Tensors gradients_of(const torch::Tensor& y, const Tensors& inputs, const torch::Tensor& dy);

// The settings of autocast on a device at the time of construction.
struct OperatorSettings {
  explicit OperatorSettings(torch::Device of_device);
  torch::DeviceType device;
  bool casts;
  torch::ScalarType type;
};

// While it lives, operators run as they did then, in this thread. Weights are cast for every operator: a cast that was
// made where gradients are not recorded must not serve where they are.
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

// y = f(inputs[0]), computed again as `settings` say, and the gradients of all inputs, of which f reads the others
// besides. inputs[0] is a leaf.
struct Repeated {
  torch::Tensor y;
  Tensors gradients;
};
Repeated repeat(const OperatorSettings& settings, const Tensors& inputs, const torch::Tensor& dy,
                c10::function_ref<torch::Tensor(const torch::Tensor& x)> f);

// f(x), of which x is kept. `weights`: all that f reads besides and that may have gradients; those that have none cost
// backward nothing. f must give the same again, draw nothing, and live as long as the graph.
torch::Tensor recomputed(const Recomputed& f, const torch::Tensor& x, const Tensors& weights);

// The same for a function of rows that are independent of each other, x_rd, in `chunks` parts, one after the other, of
// nearly the same number of rows; the results are joined.
torch::Tensor recomputed_in_chunks(const Recomputed& f, const torch::Tensor& x_rd, const Tensors& weights,
                                   std::int64_t chunks);

}  // namespace metaformer
