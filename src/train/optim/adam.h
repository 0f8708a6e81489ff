#pragma once
// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019) over a flat parameter buffer, through LibTorch's
// fused operators.

#include "config/train_config.h"
#include "train/optim/optimizer.h"

namespace metaformer {

class Adam : public Optimizer {
 public:
  // `decoupled`: a weight w loses rate x decay x w (AdamW); `in_gradient`: decay x w is added to its gradient.
  enum class Decaying { decoupled, in_gradient };

  // Updates the parameters in `ranges` (train/optim/optimizer.h). Keeps a reference to `parameters`.
  Adam(ParameterBuffer& parameters, std::vector<DecayRange> ranges, const MomentsConfig& config, Decaying decaying,
       GradientScale scale = {});

  void step(double learning_rate) override;
  void step(const torch::Tensor& learning_rate) override;
  void reset() override;

  // Moments by parameter name: "first_moment.NAME", "second_moment.NAME", and "steps".
  NamedTensors state() const override;

 private:
  template <class Rate>
  void update(const Rate& learning_rate);
  template <class Use>
  void for_each_view(const Use& use) const;  // use(view, index of its range) for the views in a range

  ParameterBuffer& parameters_;
  std::vector<DecayRange> ranges_;
  MomentsConfig config_;
  Decaying decaying_;
  GradientScale scale_;
  std::vector<torch::Tensor> first_moments_, second_moments_;  // of each range
  torch::Tensor steps_;  // float scalar, on the device: what the fused operator reads
};

}  // namespace metaformer
