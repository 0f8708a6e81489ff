#pragma once
// Checkpoints: folders checkpoints/step-N that never change once they have their name.

#include <optional>

#include "data/codec.h"
#include "train/checkpoint_meta.h"
#include "train/run_directory.h"
#include "train/safetensors.h"

namespace metaformer {

struct Checkpoint {
  std::filesystem::path folder;
  Progress progress;
  NamedTensors model;
  NamedTensors optimizer;  // only when asked for
  Codec codec;
};

// Writes step-N under a temporary name, syncs, renames; an existing whole step-N is kept as it is. Then points `last`
// (and `best`, when this is the best step) at it and removes the oldest beyond `keep`, never a link's target. Throws
// Error (exit code 1) when the disk is full; earlier checkpoints are then as before.
void save_checkpoint(const RunDirectory& run, const Progress& progress, const NamedTensors& model,
                     const NamedTensors& optimizer, const Codec& codec, std::int64_t keep);

// Points `last` and `best` where they would point had the process that saved this checkpoint not died before it got to
// them, and removes what it left behind.
void mend_links(const RunDirectory& run, const Progress& progress, std::int64_t keep);

enum class WithOptimizer { no, yes };

// `name`: best, last, step-N, or a folder. Every file is checked against the digests in meta.json. Errors: exit code 2
// when there is no such checkpoint, 1 when it is damaged.
Checkpoint load_checkpoint(const RunDirectory& run, const std::string& name, WithOptimizer with_optimizer);

// The newest checkpoint that is whole; damaged ones are skipped with a warning. Nothing when there is none at all; an
// Error (exit code 1) when all are damaged, or when a newer program wrote one.
std::optional<Checkpoint> load_newest_checkpoint(const RunDirectory& run);

}  // namespace metaformer
