#pragma once
// Trainings that diverge: loss or gradients that are not finite, spikes, and what a rollback changes.

#include <string>

#include "base/error.h"
#include "config/train_config.h"
#include "run/checkpoint_meta.h"
#include "train/step.h"

namespace metaformer {

// The error (exit code 4) for a training of which `what` is not finite. Names the first tensor that is not finite, too,
// and what to do.
Error divergence_error(const Step& step, const Progress& progress, const std::string& what);

// Takes the gradient norm of one step. True for a spike: log(norm) lies more than `threshold` standard deviations above
// its running mean. The first 20 steps are never spikes; spikes and norms that are not finite do not enter the mean.
// threshold 0: never a spike.
bool is_spike(SpikeState& state, double norm, double threshold);

// Warns of spikes in the coming steps, and rejects their updates where the config says so. Empty when nobody watches.
// Keeps references.
AcceptNorm spike_watch(const TrainConfig& config, Progress& progress);

// train.divergence.action: rollback. A run that diverged goes on from an earlier checkpoint, with other batches and a
// lower learning rate.
// The product of the factors by which the rollbacks so far lower the learning rate.
double rollback_factor(const TrainConfig& config, const Progress& progress);

// The step whose batches are trained on next; after a rollback an index beyond train.steps.
std::int64_t batch_step(const Progress& progress);

}  // namespace metaformer
