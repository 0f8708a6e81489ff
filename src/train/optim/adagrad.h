#pragma once
// Adagrad (Duchi, Hazan and Singer 2011) over a flat parameter buffer, as torch.optim.Adagrad without a decaying rate.

#include "train/optim/optimizer.h"

namespace metaformer {

// With the sum s of a weight's squared gradients: s <- s + g^2, w <- w - rate g / (sqrt(s) + epsilon). A weight whose
// gradient is zero stays as it is, so that on the CPU tables whose rows with gradients are listed (GradientRows) are
// updated there only, unless they decay.
class Adagrad : public Optimizer {
 public:
  // Keeps a reference to `parameters`.
  Adagrad(ParameterBuffer& parameters, const AdagradConfig& config, GradientScale scale = {});

  void step(double learning_rate) override;
  void step(const torch::Tensor& learning_rate) override;
  void reset() override;

  // "squared_gradients.NAME" by parameter name.
  NamedTensors state() const override;

 private:
  // A table whose rows with gradients may be listed.
  struct Table {
    const ParameterBuffer::View& view;
    DecayRange range;
  };
  template <class Rate>
  void update(const DecayRange& range, const Rate& learning_rate);
  void update_listed_rows(const Table& table, double learning_rate);

  ParameterBuffer& parameters_;
  AdagradConfig config_;
  GradientScale scale_;
  std::vector<DecayRange> ranges_;  // of all other parameters
  std::vector<Table> tables_;
  torch::Tensor sums_;
  torch::Tensor steps_;  // float scalar that the library's operator wants, and which has no effect
};

}  // namespace metaformer
