#pragma once
// Trainings that diverge: loss or gradients no longer finite, or spikes.

#include <string>

#include "base/error.h"
#include "config/train_config.h"
#include "model/parameters.h"
#include "run/checkpoint_meta.h"
#include "train/step/training_step.h"

namespace metaformer {

// Makes the error for a training that is no longer finite.
class Divergence {
 public:
  // Keeps references, to say how things are when it happens.
  Divergence(ParameterBuffer& parameters, const Progress& progress, const double& learning_rate)
      : parameters_(parameters), progress_(progress), learning_rate_(learning_rate) {}

  // Exit code 4. `what` is not finite; names the first tensor that is not finite, too, and what to do.
  Error error(const std::string& what) const;

 private:
  ParameterBuffer& parameters_;
  const Progress& progress_;
  const double& learning_rate_;
};

// Gradient norms that stand out: a sign of trouble before it shows in the loss.

// Takes the gradient norm of one step. True for a spike: log(norm) lies more than `threshold` standard deviations above
// its running mean. The first steps (20) only teach what is usual; spikes and what is not finite teach nothing.
// threshold 0: never a spike.
bool is_spike(SpikeState& state, double norm, double threshold);

// Warns of spikes in the coming steps, and rejects their updates where the config says so. Empty when nobody watches.
// Keeps references.
AcceptNorm spike_watch(const TrainConfig& config, Progress& progress);

}  // namespace metaformer
