#pragma once
// Evaluates a predictor on a split.

#include <nlohmann/json.hpp>

#include "config/train_config.h"
#include "distributed/process_group.h"
#include "tasks/predictor.h"
#include "tasks/task.h"

namespace metaformer {

// Over the whole split, each target once. Deterministic. Throws Interrupted when a stop signal arrives. Processes of a
// group take turns in the batches, and all get what one process gets, to the last bit. A predictor that remembers
// computes all batches in each of them.
nlohmann::ordered_json evaluate_split(const Predictor& predictor, const Task& task, Split split, Precision precision,
                                      torch::Device device, ProcessGroup& group = one_process());

// What those metrics follow from.
ScoreSums score_split(const Predictor& predictor, const Task& task, Split split, Precision precision,
                      torch::Device device, ProcessGroup& group = one_process());

// Over `batches` random batches, always the same ones.
nlohmann::ordered_json estimate_split(const Predictor& predictor, const Task& task, Split split, std::int64_t batches,
                                      Precision precision, torch::Device device, ProcessGroup& group = one_process());

// "loss 0.0012, exact match 99.5%": what a task's metrics come down to.
std::string headline_of(const Task& task, const nlohmann::ordered_json& metrics);

}  // namespace metaformer
