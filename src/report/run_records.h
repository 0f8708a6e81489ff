#pragma once
// Records of finished runs, from their folders and from CSV files of results. In a file: a row for each finished run.
// The columns are key, config, overrides and seed, the measures, and where the run was trained; `settings` holds
// RunRecord::settings as a JSON object.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "report/comparison.h"
#include "run/run_directory.h"

namespace metaformer {

// A row by its columns; cells that are empty are absent.
using ResultsRow = std::map<std::string, std::string>;

struct ResultsFile {
  std::vector<std::string> columns;
  std::vector<ResultsRow> rows;
  std::vector<std::int64_t> lines;  // where each row starts
};

// A byte order mark is skipped. Errors (exit code 3), with FILE:LINE: unreadable, no columns `config`, `seed` and
// `settings`, two columns of one name, a malformed row.
ResultsFile read_results(const std::filesystem::path& path);

struct FoundRuns {
  std::vector<RunRecord> runs;        // in the order of the arguments, those of a pattern by name
  std::vector<std::string> problems;  // a line for each run or row without a result: unfinished, diverged, damaged
  std::vector<std::filesystem::path> folders;  // of all runs except rows of results files, with or without a result
  std::map<std::filesystem::path, std::string> unfinished;  // by folder: why a run has no result
};

// The runs of the rows. A row with a number that is not finite is left out: the run diverged. Errors (exit code 3),
// with FILE:LINE: a seed that is no whole number, a measure that is no number, settings that are no JSON.
FoundRuns records_of(const ResultsFile& file, const std::filesystem::path& path);

// Adds the runs to the file. The row of the same run (with the same key; if neither has a key, with the same config,
// overrides, seed and data) is replaced, except for cells in columns of other programs; of equal runs the first counts.
// Other rows and columns stay, and runs that came from rows are written unchanged. Rows whose keys are in `order` come
// first, in that order. Locks the folder, so that several processes may export into one file, and replaces the file
// atomically. Rows that a comparison leaves out stay, with a warning. Errors, which leave the file as it is: it cannot
// be read or written (exit code 1 or 3), one of its rows is malformed (3, as records_of), there is no run (2).
void export_results(const std::filesystem::path& given, const std::vector<RunRecord>& runs,
                    const std::vector<std::string>& order);

// An argument is the folder of a run, a folder of such folders, a CSV file of results, or a pattern of those
// ("runs/a-*", as a shell would expand it), which skips folders without runs. Errors (exit code 2): one that names no
// run; (exit code 3) those of read_results.
FoundRuns find_runs(const std::vector<std::string>& arguments);

// Puts runs and folders into the order of their sweep: that of the rows of results files, then that of the list that
// experiments/lib/sweep.sh leaves beside the runs (.sweep/order). Other runs keep their order, behind these. A row of a
// run whose folder is also there is left out.
void sort_by_sweep(FoundRuns& found);

// A text that changes when one of these runs or results files has changed, or another one has come. Errors: exit code 2
// for an argument that names no run.
std::string state_of_runs(const std::vector<std::string>& arguments);

// The last line of train.log; "" if there is none. Errors (exit code 3): it cannot be read.
std::string last_log_line(const RunDirectory& run);

// Whether this last line says that a number was not finite, with which training ends.
bool says_diverged(std::string_view line);

// A member of an object as text: a string itself, another value as JSON, "" if it is null or missing.
std::string text_of(const nlohmann::ordered_json& json, const char* key);

}  // namespace metaformer
