#pragma once
// Predicting the next token of a text.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
