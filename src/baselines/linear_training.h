#pragma once
// Training of model.kind: linear, which knows no steps: one fit to the whole training split.

#include "config/loader.h"
#include "run/run_directory.h"
#include "tasks/task.h"

namespace metaformer {

// Fits the model to the training split of a classification, evaluates it, and leaves what a training of one step
// leaves: checkpoints/step-1, metrics.jsonl, summary.json, which is returned. Of the config's training keys none has a
// say. The same weights every time. Throws Interrupted when a signal asks to stop; nothing is saved then.
nlohmann::ordered_json train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task,
                                    torch::Device device);

}  // namespace metaformer
