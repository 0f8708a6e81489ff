#pragma once
// Decides what is due at a step of a run.

#include "config/train_config.h"
#include "run/progress.h"

namespace metaformer {

// The last step is done, or train.patience ended training early.
bool is_finished(const TrainConfig& config, const Progress& progress);

// Every `interval` steps, and where training ends.
bool is_at(const TrainConfig& config, const Progress& progress, std::int64_t interval);

// An evaluation is due at this step and not done.
bool lacks_evaluation(const TrainConfig& config, const Progress& progress);

// At this step, once its evaluation is done.
bool is_checkpoint_due(const TrainConfig& config, const Progress& progress);

}  // namespace metaformer
