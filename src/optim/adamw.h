#pragma once
// AdamW (Loshchilov and Hutter 2019) over a flat parameter buffer, through LibTorch's fused operator.

#include "config/optimizer_config.h"
#include "model/parameter_buffer.h"
#include "optim/optimizer.h"

namespace metaformer {

class AdamW : public Optimizer {
 public:
  // Keeps a reference to `parameters`. Weight decay applies to matrices only.
  AdamW(ParameterBuffer& parameters, const AdamWConfig& config);

  void step(double learning_rate) override;
  void step(const torch::Tensor& learning_rate) override;
  void reset() override;

  // Moments by parameter name: "first_moment.NAME", "second_moment.NAME", and "steps".
  NamedTensors state() const override;
  void load_state(const NamedTensors& saved, const std::string& source) override;
  std::string first_not_finite() const override;

 private:
  template <class Rate>
  void update_all(const Rate& learning_rate);
  template <class Rate>
  void update(std::int64_t first, std::int64_t count, double weight_decay, const Rate& learning_rate);

  ParameterBuffer& parameters_;
  AdamWConfig config_;
  torch::Tensor first_moment_, second_moment_;
  torch::Tensor steps_;  // float scalar, on the device: what the fused operator reads
};

}  // namespace metaformer
