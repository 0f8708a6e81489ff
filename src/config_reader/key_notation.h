#pragma once
// How a key is written, for messages that show what would be right.

#include <string>
#include <string_view>

#include "yaml/tree.h"

namespace metaformer {

// "warmup_steps" of "train.schedule.warmup_steps".
std::string_view last_part(std::string_view path);

// "train.schedule" of "train.schedule.warmup_steps"; "" of a key at the top.
std::string_view section_of(std::string_view path);

// `entries` ("batches: 5") of the section "train.evaluation" as a file has them, with the kind that `kind` names
// ("train.evaluation: random"), or none: "train: {evaluation: {kind: random, batches: 5}}".
std::string as_yaml(std::string_view section, std::string_view entries, std::string_view kind = "");

// "--set train.steps=30". A value that a shell might change, or that is no single word, is shown as "...".
std::string as_override(std::string_view path, const ConfigNode& value);

// Whether a --set argument is the place: files have lines.
bool is_override(const Location& where);

}  // namespace metaformer
