#pragma once
// The checkpoint that validation chose, where it is no longer there.

#include "run/checkpoint.h"
#include "tasks/task.h"

namespace metaformer {

// When the best checkpoint is missing or damaged, `progress` takes the best of those that are left, with a warning.
// When none that was evaluated is left, it counts as not evaluated yet.
void require_best_checkpoint(const RunDirectory& run, const Task& task, Progress& progress);

}  // namespace metaformer
