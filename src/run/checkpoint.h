#pragma once
// Checkpoints of a run.

#include <optional>

#include "ops/named_tensors.h"
#include "run/checkpoint_meta.h"
#include "run/run_directory.h"
#include "tasks/task.h"
#include "text/tokenizer.h"

namespace metaformer {

// A folder checkpoints/step-N. It never changes once it has this name, with one exception: if it was saved before the
// evaluation of its step, it is replaced in one operation after that evaluation.
struct Checkpoint {
  std::filesystem::path folder;
  Progress progress;
  NamedTensors model;
  NamedTensors optimizer;  // only when asked for
  Codec codec;
};

// Writes step-N under a temporary name, syncs, reads it back, and renames it. An intact step-N stays, unless the new
// one has more information (its evaluation) or belongs to another number of rollbacks. Then calls repair_links. Throws
// Error (exit code 1) when the disk is full or the files do not read back as written; earlier checkpoints then stay
// unchanged.
void save_checkpoint(const RunDirectory& run, const Progress& progress, const NamedTensors& model,
                     const NamedTensors& optimizer, const Codec& codec, std::int64_t keep);

// Finishes a replacement that was interrupted, and turns folders called `last` and `best`, which a copy that follows
// links leaves, into links. Only the holder of the run's lock may call it.
void repair_checkpoints(const RunDirectory& run);

enum class WithOptimizer { no, yes };

// Loads the checkpoint `name`: best, last, step-N, or a folder. Every file that is read is checked against its SHA-256
// in meta.json. Without the optimizer, neither its state nor the tables of the evaluation are read. `option` names the
// command line option in messages. Errors: exit code 2 when there is no such checkpoint, 1 when it is damaged.
Checkpoint load_checkpoint(const RunDirectory& run, const std::string& name, WithOptimizer with_optimizer,
                           const char* option = "--checkpoint");

// Loads the checkpoint to resume from: the newest intact one after the most rollbacks. Damaged ones are skipped with a
// warning. Nothing when there are no checkpoints; an Error (exit code 1) when all are damaged, or when a newer program
// wrote one.
std::optional<Checkpoint> load_newest_checkpoint(const RunDirectory& run);

// Begins the new run `run` with the state of the run `from` at a checkpoint: copies that checkpoint, the best one until
// then, the logs, from which MetricsLog drops the lines of later steps, and environment.json, which keeps the sessions
// before that step and gets `continued_from`. If it throws, the folder of the new run is free again.
void begin_from_checkpoint(const RunDirectory& run, const RunDirectory& from, const Checkpoint& checkpoint);

// Loads the checkpoint to which a run that diverged at `progress` goes back: the newest scheduled one since its last
// rollback or, if there is none, the newest scheduled one from before the step to which that rollback went back.
// Nothing when there is no such checkpoint: the run then goes back to its start.
std::optional<Checkpoint> load_rollback_checkpoint(const RunDirectory& run, const Progress& progress);

// If the best checkpoint is missing or damaged, replaces it in `progress` by the best of the remaining evaluated ones,
// with a warning. If there is none, `progress` counts as not evaluated yet.
void require_best_checkpoint(const RunDirectory& run, const Measures& measures, Progress& progress);

}  // namespace metaformer
