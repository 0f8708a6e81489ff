#pragma once
// Keys of earlier versions and where they are now: the one table behind the message for an old key and the reader of
// old runs.

#include <string>
#include <string_view>
#include <vector>

#include "yaml/tree.h"

namespace metaformer {

struct MovedKey {
  std::string_view from;  // "train.label_smoothing"
  std::string_view to;    // "task.label_smoothing"
  std::string_view kind;  // "task: classification": the kind that has it; "" where the default one does
};

// The row of `path`; of a section that is gone, those of its keys, which have one section now. Empty where there is
// none.
std::vector<MovedKey> find_moved_keys(std::string_view path);

// "task.label_smoothing (task: {kind: classification, label_smoothing: ...})"; "task.length, task.digits (...)".
std::string describe_new_keys(const std::vector<MovedKey>& moved);

// The new path of the moved key whose last part is `name`; "" where there is none, or more than one.
std::string moved_key_named(std::string_view name);

// Puts every old key of a complete config in its new place. Returns whether there were any.
bool move_keys(ConfigNode& root);

}  // namespace metaformer
