#pragma once
// Predicting which words stand on both sides of a region of a text.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Its model is a NeighbourModel (model/neighbour_model.h), its loss the mean of that model's errors over the tokens.
Task make_neighbouring_words_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
