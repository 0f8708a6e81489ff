#pragma once
// The checkpoint that validation chose, where it is no longer there.

#include <functional>

#include "run/progress.h"
#include "run/run_directory.h"

namespace metaformer {

// What chooses among checkpoints by their validation metrics: the lowest is the best (Metrics::selection_error).
using SelectionError = std::function<double(const nlohmann::ordered_json& metrics)>;

// When the best checkpoint is missing or damaged, `progress` takes the best of those that are left, with a warning.
// When none that was evaluated is left, it counts as not evaluated yet.
void require_best_checkpoint(const RunDirectory& run, const SelectionError& error_of, Progress& progress);

}  // namespace metaformer
