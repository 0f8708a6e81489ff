#pragma once
// Updates parameters from their gradients.

#include "run/safetensors.h"

namespace metaformer {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update from the gradients in the parameter buffer. A rate in a tensor (a scalar on the parameters' device) is
  // read there: the host waits for nothing, and a graph that holds the update can be given another rate.
  virtual void step(double learning_rate) = 0;
  virtual void step(const torch::Tensor& learning_rate) = 0;

  // Back to the state before the first step.
  virtual void reset() = 0;

  // What a checkpoint keeps. Loading: errors (exit code 1) name what is missing or has another shape; `source` names
  // the file.
  virtual NamedTensors state() const = 0;
  virtual void load_state(const NamedTensors& saved, const std::string& source) = 0;

  // The parameter whose state holds a NaN or an infinity; "" when none does.
  virtual std::string first_not_finite() const = 0;
};

}  // namespace metaformer
