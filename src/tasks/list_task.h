#pragma once
// Sorting and copying lists of numbers: a causal model continues a list with its sorted copy (minGPT), or with itself
// (Reformer).

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Its metrics have exact_match: the fraction of lists of whose answer every number is the likeliest. Each is predicted
// from the true numbers before it, so that this is also the fraction that greedy generation gets right.
Task make_list_task(const ExperimentConfig& config);

}  // namespace metaformer
