#pragma once
// meta.json of a checkpoint: how far the run was, and the SHA-256 of every other file. No torch in it.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "run/progress.h"

namespace metaformer {

// A checkpoint that this program is too old to read: nothing is wrong with it.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

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
