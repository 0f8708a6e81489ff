#pragma once
// Stochastic gradient descent with momentum (Sutskever et al. 2013) over a flat parameter buffer, as torch.optim.SGD,
// through LibTorch's fused operator.

#include "train/optim/optimizer.h"

namespace metaformer {

class Sgd : public Optimizer {
 public:
  // Keeps a reference to `parameters`.
  Sgd(ParameterBuffer& parameters, const SgdConfig& config, GradientScale scale = {});

  void step(double learning_rate) override;
  void step(const torch::Tensor& learning_rate) override;
  void reset() override;

  // "momentum.NAME" by parameter name; nothing without momentum.
  NamedTensors state() const override;

 private:
  template <class Rate>
  void update(const Rate& learning_rate);

  ParameterBuffer& parameters_;
  SgdConfig config_;
  std::vector<DecayRange> ranges_;
  GradientScale scale_;
  torch::Tensor momentum_;  // undefined: none
};

}  // namespace metaformer
