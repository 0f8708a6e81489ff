#pragma once
// Builds the lines of metrics.jsonl and the summary of a training.

#include "config/experiment_config.h"
#include "run/run_summary.h"
#include "tasks/task.h"
#include "train/training_clock.h"

namespace metaformer {

// A line of metrics.jsonl for the steps since the last one, without `loss_sum` and what else counts from line to line.
nlohmann::ordered_json training_line(const Task& task, const Progress& progress, const TrainingClock& clock,
                                     double learning_rate, double gradient_norm, torch::Device device);

// Without what follows the training: the test split, the run's folder, baselines.
RunSummary summarise(const ExperimentConfig& config, const Task& task, const SequenceModel& model,
                     const Progress& progress, const TrainingClock& clock, torch::Device device);

}  // namespace metaformer
