#pragma once
// Describes the data of a task.

#include <nlohmann/json.hpp>
#include <string>

#include "text/codec.h"

namespace metaformer {

class TaskData {
 public:
  virtual ~TaskData() = default;

  virtual const Codec& codec() const = 0;

  // For environment.json: where the data came from and what it hashes to.
  virtual nlohmann::ordered_json description() const = 0;

  // The same in a line for people.
  virtual std::string summary() const = 0;

  // Before training: warns of what looks like a slip; throws (exit code 3) where nothing could be chosen on the
  // validation split.
  virtual void check() const {}
};

}  // namespace metaformer
