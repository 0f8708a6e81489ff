#pragma once
// Finding the class of a text.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Its metrics are ClassificationMetrics. Its adaptation is for a Classifier (model/classifier.h).
Task make_classification_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
