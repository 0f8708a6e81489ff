#pragma once
// Checkpoints of a run.

#include <optional>

#include "ops/named_tensors.h"
#include "run/checkpoint_meta.h"
#include "run/run_directory.h"
#include "tasks/task.h"
#include "text/tokenizer.h"

namespace metaformer {

// Folders checkpoints/step-N, immutable once they have that name, except that one that was saved without the evaluation
// of its step is replaced, at once, when that evaluation is done.
struct Checkpoint {
  std::filesystem::path folder;
  Progress progress;
  NamedTensors model;
  NamedTensors optimizer;  // only when asked for
  Codec codec;
};

// Writes step-N under a temporary name, syncs, reads it back, and renames it. A whole step-N stays, unless this one
// knows more: its evaluation, or another course after a rollback. Then repair_links. Throws Error (exit code 1) when
// the disk is full or the files do not read back; earlier checkpoints are then as before.
void save_checkpoint(const RunDirectory& run, const Progress& progress, const NamedTensors& model,
                     const NamedTensors& optimizer, const Codec& codec, std::int64_t keep);

// Finishes a replacement that was interrupted, and turns folders called `last` and `best`, which a copy that follows
// links leaves, into links. Only the holder of the run's lock may call it.
void repair_checkpoints(const RunDirectory& run);

enum class WithOptimizer { no, yes };

// `name`: best, last, step-N, or a folder. Every file that is read is checked against the digests in meta.json: all of
// them with the optimizer, without it neither its state nor the tables of the evaluation. Errors: exit code 2 when
// there is no such checkpoint, 1 when it is damaged.
Checkpoint load_checkpoint(const RunDirectory& run, const std::string& name, WithOptimizer with_optimizer);

// The checkpoint to go on from: the newest that is whole, after the most rollbacks. Damaged ones are skipped with a
// warning. Nothing when there is none at all; an Error (exit code 1) when all are damaged, or when a newer program
// wrote one.
std::optional<Checkpoint> load_newest_checkpoint(const RunDirectory& run);

// Where a run that diverged at `progress` goes back to: the newest scheduled checkpoint since its last rollback; when
// there is none, the newest from before the step that this one went back to. Nothing when there is none left: the
// start.
std::optional<Checkpoint> load_rollback_checkpoint(const RunDirectory& run, const Progress& progress);

// When the best checkpoint is missing or damaged, `progress` takes the best of those that are left, with a warning.
// When none that was evaluated is left, it counts as not evaluated yet.
void require_best_checkpoint(const RunDirectory& run, const Measures& measures, Progress& progress);

}  // namespace metaformer
