#pragma once
// Predicting hidden tokens of a text from those on both sides of them.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Its model is a MaskedLanguageModel (model/masked_language_model.h). Its metrics have unigram_entropy, the loss of
// predicting every token of the split by its frequency: a model with a lower loss has learned from what is around.
Task make_masked_language_model_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
