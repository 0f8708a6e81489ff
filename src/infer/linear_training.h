#pragma once
// Training of model: linear, which knows no steps: one fit to the whole training split.

#include <nlohmann/json.hpp>

#include "config/loader.h"
#include "config/train_config.h"
#include "distributed/process_group.h"
#include "run/run_directory.h"
#include "run/run_summary.h"
#include "tasks/task.h"

namespace metaformer {

// Held-out splits at the end of a training.

// Of a classifier, writes confusion_SPLIT.csv of the run from the scores of a whole split; not for more than
// most_confused_classes.
void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums);

// The metrics of the whole test split. Of a classifier, also writes the run's confusion_test.csv and, unless it was
// trained and is evaluated on one batch only (train.overfit_batch), test_predictions.safetensors. Processes of a group
// share the work; the first writes.
nlohmann::ordered_json report_test(const Predictor& predictor, const Task& task, const TrainConfig& train,
                                   const RunDirectory& run, torch::Device device, ProcessGroup& group = one_process());

// Fits the model to the training split of a classification, evaluates it, and leaves what a training of one step
// leaves, but for summary.json: checkpoints/step-1 and metrics.jsonl. Returns the summary. The same weights every time.
// Throws Interrupted when a signal asks to stop; nothing is saved then.
RunSummary train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device);

}  // namespace metaformer
