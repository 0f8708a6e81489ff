#pragma once
// meta.json of a checkpoint: how far the run was, and the SHA-256 of every other file. No torch in it.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/error.h"
#include "train/spike_detector.h"

namespace metaformer {

struct BestSoFar {
  std::int64_t step = 0;
  double loss = 0;   // on the validation split
  double error = 0;  // what chose it (Task::selection_error)
};

// What a run needs to go on, besides tensors. Batches, dropout and the learning rate are functions of the step.
struct Progress {
  std::int64_t step = 0;  // steps done
  std::optional<BestSoFar> best;
  double loss_sum = 0;  // of the steps since the last line of metrics.jsonl
  std::int64_t loss_count = 0;
  double last_train_loss = 0;  // of the last such line
  double train_seconds = 0;
  std::int64_t evaluated_step = 0;    // of the last evaluation
  nlohmann::ordered_json validation;  // metrics of the last evaluation, null before it
  std::int64_t evaluations_since_best = 0;
  std::int64_t rollbacks = 0;
  std::int64_t rollback_step = 0;  // the step that the last rollback went back to
  bool scheduled = true;  // saved where the config says so, its evaluation done; false: where a signal asked for it
  SpikeState spikes;
  std::int64_t clipped_steps = 0, clipped_count = 0;  // of all steps; of those since the last line of metrics.jsonl
  double wall_seconds = 0, evaluation_seconds = 0;    // of all processes that trained the run, as far as it was saved
};

// A checkpoint that this program is too old to read: nothing is wrong with it.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

// The evaluation that is due at the progress's step is done.
inline bool is_evaluated(const Progress& progress) { return progress.evaluated_step == progress.step; }

// Metrics without what holds more values the more classes there are: objects and lists.
nlohmann::ordered_json without_tables(const nlohmann::ordered_json& metrics);

struct CheckpointMeta {
  Progress progress;                           // its validation metrics without_tables
  std::map<std::string, std::string> digests;  // SHA-256 by file name
};

// The content of meta.json: small, whatever the task. It ends with its own SHA-256.
std::string to_text(const CheckpointMeta& meta);

// `source` names the file in errors (exit code 1): damaged, or progress that no run can have; NewerFormat.
CheckpointMeta read_checkpoint_meta(const std::string& text, const std::string& source);

}  // namespace metaformer
