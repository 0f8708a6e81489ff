#pragma once
// The task that a config asks for.

#include "config/experiment_config.h"
#include "tasks/task.h"

namespace metaformer {

// Builds the task of a config: reads its data (fetching a public corpus unless `offline`), and builds the codec unless
// one is given. Throws Error (exit codes 2 and 3).
Task make_task(const ExperimentConfig& config, bool offline, Codec codec = {});

}  // namespace metaformer
