#pragma once
// Training of model: linear, which knows no steps: one fit to the whole training split.

#include "config_reader/loader.h"
#include "run/run_summary.h"
#include "tasks/task.h"

namespace metaformer {

// Fits the model to the training split of a classification, evaluates it, and leaves what a training of one step
// leaves, but for summary.json: checkpoints/step-1 and metrics.jsonl. Returns the summary. The same weights every time.
// Throws Interrupted when a signal asks to stop; nothing is saved then.
RunSummary train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device);

}  // namespace metaformer
