#pragma once
// train.divergence.action: rollback. A run that diverged goes on from an earlier checkpoint, with other batches and a
// lower learning rate.

#include "base/error.h"
#include "tasks/metrics.h"
#include "train/training_setup.h"

namespace metaformer {

// What the rollbacks so far multiply the learning rate by.
double rollback_factor(const TrainConfig& config, const Progress& progress);

// The step whose batches are trained on next: after a rollback those of steps that no run reaches.
std::int64_t batch_step(const Progress& progress);

class Rollback {
 public:
  // Keeps references. `setup` has its initial weights, which a rollback may need.
  Rollback(const TrainConfig& config, const RunDirectory& run, const Metrics& metrics, TrainingSetup& setup);

  // Restores `setup` and `progress` to the state to go on from; false when the error is no divergence, or the config
  // allows no rollback or none any more.
  bool recover(const Error& error, Progress& progress);

 private:
  Progress restore(const std::optional<Checkpoint>& checkpoint);

  const TrainConfig& config_;
  const RunDirectory& run_;
  const Metrics& metrics_;
  TrainingSetup& setup_;
  torch::Tensor initial_values_;
};

}  // namespace metaformer
