#pragma once
// Reads the folder of a run for a comparison. Format: docs/run_directory.md.

#include <filesystem>
#include <optional>
#include <string>

#include "compare/run_record.h"

namespace metaformer {

// What a comparison needs of a run, or why there is nothing to compare: the run is unfinished, it diverged, or its
// files cannot be read.
struct RunReading {
  std::optional<RunRecord> record;
  std::string problem;  // "" with a record; else one line, without the folder's name
};
RunReading read_run(const std::filesystem::path& folder);

}  // namespace metaformer
