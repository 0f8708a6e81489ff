#pragma once
// The fastest training step for a config and a device.

#include "step/batch_loss.h"
#include "step/training_step.h"

namespace metaformer {

std::unique_ptr<TrainingStep> make_training_step(const StepParts& parts);

}  // namespace metaformer
