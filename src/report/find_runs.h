#pragma once
// The runs that the arguments of a command name.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "report/comparison.h"

namespace metaformer {

struct FoundRuns {
  std::vector<RunRecord> runs;        // in the order of the arguments, of a pattern by name
  std::vector<std::string> problems;  // a line for each run that has nothing to compare: unfinished, diverged, damaged
  std::vector<std::filesystem::path> folders;  // of all runs that are no rows of results files, with a result or not
  std::map<std::filesystem::path, std::string> unfinished;  // by folder: why a run has no result
};

// An argument is the folder of a run, a folder of such folders, a CSV file of results, or a pattern of those
// ("runs/a-*", as a shell would expand it), which passes over folders without runs. Errors (exit code 2): one that
// names no run; (exit code 3) those of read_results.
FoundRuns find_runs(const std::vector<std::string>& arguments);

}  // namespace metaformer
