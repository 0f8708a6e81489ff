#pragma once
// The task that a config asks for.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Builds the task of a config: reads its data (fetching a public corpus unless `offline`), builds or takes the codec.
// Errors: exit codes 2 and 3.
Task make_task(const ExperimentConfig& config, bool offline, Codec codec = {});

Task make_language_model_task(const ExperimentConfig& config, bool offline, Codec codec);

// The measures have unigram_entropy, the loss of predicting every token of the split by its frequency: a model with a
// lower loss has learned from the context.
Task make_masked_language_model_task(const ExperimentConfig& config, bool offline, Codec codec);

Task make_classification_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
