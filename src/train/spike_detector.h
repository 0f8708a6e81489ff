#pragma once
// Gradient norms that stand out: a sign of trouble before it shows in the loss.

#include "config/train_config.h"
#include "run/progress.h"
#include "step/training_step.h"

namespace metaformer {

// Takes the gradient norm of one step. True for a spike: log(norm) lies more than `threshold` standard deviations above
// its running mean. The first steps (20) only teach what is usual; spikes and what is not finite teach nothing.
// threshold 0: never a spike.
bool is_spike(SpikeState& state, double norm, double threshold);

// Warns of spikes in the coming steps, and rejects their updates where the config says so. Empty when nobody watches.
// Keeps references.
AcceptNorm spike_watch(const TrainConfig& config, Progress& progress);

}  // namespace metaformer
