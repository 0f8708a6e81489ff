#pragma once
// Sorting lists of numbers (minGPT): a causal model continues a list with its sorted copy.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Its metrics have exact_match: the fraction of lists whose every sorted number is the likeliest. Each is predicted
// from the true numbers before it, so that this is also the fraction that greedy generation sorts.
Task make_sort_task(const ExperimentConfig& config);

}  // namespace metaformer
