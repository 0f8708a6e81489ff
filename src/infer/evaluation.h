#pragma once
// A model's metrics on a split.

#include <nlohmann/json.hpp>

#include "tasks/task.h"

namespace metaformer {

// Over the whole split, each target once. Deterministic. Throws Interrupted when a stop signal arrives.
nlohmann::ordered_json evaluate_split(SequenceModel& model, const Task& task, Split split, Precision precision,
                                      torch::Device device);

// What those metrics follow from.
ScoreSums score_split(SequenceModel& model, const Task& task, Split split, Precision precision, torch::Device device);

// Over `batches` random batches, always the same ones.
nlohmann::ordered_json estimate_split(SequenceModel& model, const Task& task, Split split, std::int64_t batches,
                                      Precision precision, torch::Device device);

// "loss 0.0012, exact match 99.5%": what a task's metrics come down to.
std::string headline_of(const Task& task, const nlohmann::ordered_json& metrics);

}  // namespace metaformer
