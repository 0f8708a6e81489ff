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

// The measures of both have exact_match: the fraction of lists or targets of which every token is the most likely one,
// given the true ones before it, so that greedy generation writes them.
Task make_list_task(const ExperimentConfig& config);
Task make_sequence_to_sequence_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
