#pragma once
// Updates parameters from their gradients.

#include <optional>

#include "ops/named_tensors.h"

namespace metaformer {

// Gradients of a scaled loss: float scalars on the parameters' device, which an optimiser reads in every step. Both
// undefined: gradients of the loss itself.
struct GradientScale {
  torch::Tensor divisor;    // what the gradients are to be divided by
  torch::Tensor found_inf;  // 1: some are not finite, and the step must change nothing; 0: all are finite
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update from the gradients in the parameter buffer. A rate in a tensor (a scalar on the parameters' device) is
  // read there: the host waits for nothing, and a graph that holds the update can be given another rate.
  virtual void step(double learning_rate) = 0;
  virtual void step(const torch::Tensor& learning_rate) = 0;

  // Back to the state before the first step.
  virtual void reset() = 0;

  // What a checkpoint keeps, by names such as "first_moment.NAME of a parameter". The tensors alias the state: what is
  // copied into them is loaded; only an optimiser that shares its state with others has to load() it then, out of
  // tensors among which those of state() are.
  virtual NamedTensors state() const = 0;
  virtual void load(const NamedTensors&) {}

  // The name in state() of a tensor that holds a NaN or an infinity; "" when none does.
  virtual std::string first_not_finite() const;
};

// What the fused operators take; nothing for an undefined tensor.
std::optional<torch::Tensor> as_optional(const torch::Tensor& tensor);

}  // namespace metaformer
