#pragma once
// The test split at the end of a training.

#include <nlohmann/json.hpp>

#include "config/train_config.h"
#include "run/run_directory.h"
#include "tasks/predictor.h"
#include "tasks/task.h"

namespace metaformer {

// The metrics of the whole test split. Of a classifier, also writes the run's test_predictions.safetensors, unless it
// was trained and is evaluated on one batch only (train.overfit_batch).
nlohmann::ordered_json report_test(const Predictor& predictor, const Task& task, const TrainConfig& train,
                                   const RunDirectory& run, torch::Device device);

}  // namespace metaformer
