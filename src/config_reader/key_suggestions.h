#pragma once
// What someone meant who wrote a key that does not exist.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/writer.h"

namespace metaformer {

// The full path of our key that has this name ("weight_decay" is "train.optimizer.weight_decay"; of several the one
// that is nested least), that an earlier version called so, or nanoGPT or Hugging Face ("lr", "num_hidden_layers",
// "per_device_train_batch_size"); "" where there is none, or more than one.
std::string full_key(std::string_view name);

// What to say of the unknown key `path` in a section that has the keys `here`: "; did you mean 'train.learning_rate'?",
// or "" where nothing is near.
std::string suggest_key(const std::string& path, const std::vector<std::string>& here);

// For a key that other kinds than the chosen one have: of which section the kind is, and which kinds those are.
std::optional<KindCondition> kinds_with(const std::string& path);

// Those of the conditions for `path` to exist that `config` does not meet.
std::vector<KindCondition> unmet_conditions(const std::string& path, const ExperimentConfig& config);

// "only model.mixer: metric has", "only train.schedule: cosine or linear have".
std::string only_have(const KindCondition& condition);

// ", which is a kind of train.divergence.action" of "rollback" where a key below `section` has that kind; else "".
std::string kind_below(const std::string& section, const std::string& kind);

}  // namespace metaformer
