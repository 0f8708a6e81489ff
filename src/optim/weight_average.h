#pragma once
// An exponential moving average of the weights (Polyak and Juditsky 1992), used in their place outside of training.

#include "model/parameter_buffer.h"
#include "ops/named_tensors.h"

namespace metaformer {

// The average after step t is (1 - decay) / (1 - decay^t) x the sum of decay^(t - i) W_i over steps i: without the
// initial weights, which would otherwise stay in it for long. decay 0: there is no average, and nothing here does
// anything.
class WeightAverage {
 public:
  // Keeps a reference to `parameters`.
  WeightAverage(ParameterBuffer& parameters, double decay);

  // Takes in the weights after step 1, 2, ...
  void update(std::int64_t step);

  // Starts again with the present weights.
  void reset();

  // While one lives, the parameters hold the average, and state() the weights in training.
  class Use {
   public:
    explicit Use(WeightAverage& average) : average_(average) { average_.exchange(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { average_.exchange(); }

   private:
    WeightAverage& average_;
  };

  // In a Use, what a checkpoint keeps beside the parameters: "trained.NAME", aliased as Optimizer::state.
  NamedTensors state() const;

 private:
  void exchange();

  ParameterBuffer& parameters_;
  double decay_;
  torch::Tensor other_;  // the average; in a Use the weights in training. Undefined: there is no average
};

}  // namespace metaformer
