#pragma once
// AdamW (Loshchilov and Hutter 2019) over a flat parameter buffer, through LibTorch's fused operator.

#include "config/train_config.h"
#include "model/parameter_buffer.h"
#include "run/safetensors.h"

namespace metaformer {

class AdamW {
 public:
  // Keeps a reference to `parameters`. Weight decay applies to matrices alone.
  AdamW(ParameterBuffer& parameters, const TrainConfig& config);

  // One update from the gradients in the buffer. A rate in a tensor (a scalar on the parameters' device) is read there:
  // the host waits for nothing, and a graph that holds the update can be given another rate.
  void step(double learning_rate);
  void step(const torch::Tensor& learning_rate);

  // Back to the state before the first step.
  void reset();

  // The parameter whose moments hold a NaN or an infinity; "" when none does.
  std::string first_not_finite() const;

  // Moments by parameter name: "first_moment.NAME", "second_moment.NAME", and "steps".
  NamedTensors state() const;

  // Errors (exit code 1) name what is missing or has another shape; `source` names the file.
  void load_state(const NamedTensors& saved, const std::string& source);

 private:
  template <class Rate>
  void update_all(const Rate& learning_rate);
  template <class Rate>
  void update(std::int64_t first, std::int64_t count, double weight_decay, const Rate& learning_rate);

  ParameterBuffer& parameters_;
  TrainConfig config_;
  torch::Tensor first_moment_, second_moment_;
  torch::Tensor steps_;  // float scalar, on the device: what the fused operator reads
};

}  // namespace metaformer
