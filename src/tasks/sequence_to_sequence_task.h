#pragma once
// One sequence from another: translation, summaries, copying and reversing.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Its metrics have exact_match: the fraction of targets of which every token is the likeliest, given the true ones
// before it, so that greedy generation writes them. Errors: exit codes 2 and 3.
Task make_sequence_to_sequence_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
