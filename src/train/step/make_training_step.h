#pragma once
// The fastest training step for a config and a device.

#include "train/step/gradients.h"
#include "train/step/training_step.h"

namespace metaformer {

std::unique_ptr<TrainingStep> make_training_step(const StepParts& parts);

}  // namespace metaformer
