#pragma once
// The folder `checkpoints` of a run: which checkpoints there are, the links to them, and what is removed. No torch in
// it.

#include <filesystem>
#include <optional>
#include <vector>

#include "run/checkpoint_meta.h"

namespace metaformer {

constexpr const char* meta_file = "meta.json";

std::string step_name(std::int64_t step);  // "step-12"

// meta.json of a checkpoint. Errors: exit code 1 when it is missing or damaged, NewerFormat.
CheckpointMeta read_meta_of(const std::filesystem::path& checkpoint);

// Steps with a folder, newest first. Links are not counted. Errors (exit code 2): the folder cannot be read.
std::vector<std::int64_t> saved_steps(const std::filesystem::path& checkpoints);

struct SavedProgress {
  std::int64_t step = 0;
  std::optional<Progress> progress;  // nothing where meta.json is damaged
};

// In the order in which a run goes on from them: those after more rollbacks first, then the newest. Damaged ones come
// where their step puts them.
std::vector<SavedProgress> saved_progress(const std::filesystem::path& checkpoints);

// A checkpoint later than the step that a rollback of the run at `now` went back to, and from before that rollback.
bool is_abandoned(const Progress& saved, const Progress& now);

// Removes such a checkpoint, which lies at `path` and was called `folder`. One that was the best becomes
// FOLDER.abandoned.
void remove_abandoned(const std::filesystem::path& path, const std::filesystem::path& folder, const Progress& saved);

// Points `last` and `best` where they belong when a run has got to `progress`, and removes what it no longer needs: the
// oldest checkpoints beyond `keep` (but no link's target, and not the newest `keep` scheduled ones), abandoned ones,
// and what an interrupted save left behind.
void mend_links(const std::filesystem::path& checkpoints, const Progress& progress, std::int64_t keep);

}  // namespace metaformer
