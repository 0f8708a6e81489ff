#pragma once
// Keys of earlier versions and where they are now: the one table behind the message for an old key and the reader of
// old runs.

#include <string>
#include <string_view>

#include "config/tree.h"

namespace metaformer {

struct MovedKey {
  std::string_view from;  // "train.label_smoothing"
  std::string_view to;    // "task.label_smoothing"
  std::string_view kind;  // "task: classification": the kind that has it; "" where the default one does
};

// The row of `path`, or the first row below it; nullptr where there is none.
const MovedKey* find_moved_key(std::string_view path);

// "moved; write task.label_smoothing (task: {kind: classification, label_smoothing: ...})"
std::string describe_move(const MovedKey& moved);

// The new path of the moved key whose last part is `name`; "" where there is none, or more than one.
std::string moved_key_named(std::string_view name);

// Puts every old key of a complete config in its new place. Returns whether there were any.
bool move_keys(ConfigNode& root);

}  // namespace metaformer
