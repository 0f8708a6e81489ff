#pragma once
// How far a run is: what it needs to go on, besides tensors.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

namespace metaformer {

// Running mean and variance of the logarithm of the gradient norm (train/spike_detector.h). Part of a checkpoint.
struct SpikeState {
  std::int64_t seen = 0;
  double mean = 0;
  double variance = 0;
  std::int64_t count = 0;  // spikes so far
};

struct BestSoFar {
  std::int64_t step = 0;
  double loss = 0;   // on the validation split
  double error = 0;  // what chose it (Task::selection_error)
};

// What a run needs to go on, besides tensors. Batches, dropout and the learning rate are functions of the step.
struct Progress {
  std::int64_t step = 0;  // steps done
  std::optional<BestSoFar> best;
  double loss_sum = 0;          // of the steps since the last line of metrics.jsonl
  std::int64_t loss_count = 0;  // without those that were skipped
  double last_train_loss = 0;   // of the last such line
  double train_seconds = 0;
  std::int64_t evaluated_step = 0;    // of the last evaluation
  nlohmann::ordered_json validation;  // metrics of the last evaluation, null before it
  std::int64_t evaluations_since_best = 0;
  std::int64_t rollbacks = 0;
  std::int64_t rollback_step = 0;  // the step that the last rollback went back to
  bool scheduled = true;  // saved where the config says so, its evaluation done; false: where a signal asked for it
  SpikeState spikes;
  std::int64_t clipped_steps = 0, clipped_count = 0;  // of all steps; of those since the last line of metrics.jsonl
  std::int64_t skipped_steps = 0;                     // because gradients overflowed in fp16
  // Of all processes that trained the run, as far as it was saved. Start-up: from the start of a process to its first
  // step; the other three lie after it.
  double startup_seconds = 0, wall_seconds = 0, evaluation_seconds = 0, checkpoint_seconds = 0;
};

// The evaluation that is due at the progress's step is done.
inline bool is_evaluated(const Progress& progress) { return progress.evaluated_step == progress.step; }

}  // namespace metaformer
