#pragma once
// CSV files of results: a row for each finished run. The columns are key, config, overrides and seed, the metrics, and
// where the run was trained; `settings` holds RunRecord::settings as a JSON object.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "compare/run_record.h"

namespace metaformer {

// A row by its columns; cells that are empty are absent.
using ResultsRow = std::map<std::string, std::string>;

struct ResultsFile {
  std::vector<std::string> columns;
  std::vector<ResultsRow> rows;
  std::vector<std::int64_t> lines;  // where each row starts
};

// Errors (exit code 3), with FILE:LINE: unreadable, no columns `config` and `seed`, a malformed row.
ResultsFile read_results(const std::filesystem::path& path);

struct ResultsRecords {
  std::vector<RunRecord> runs;
  std::vector<std::string> problems;  // a line for each row that is left out
};

// The runs of the rows. A row with a number that is not finite is left out: the run diverged. Errors (exit code 3),
// with FILE:LINE: a seed that is no whole number, a known metric that is no number, settings that are no JSON.
ResultsRecords records_of(const ResultsFile& file, const std::filesystem::path& path);

// Adds the runs to the file: a row with the key of a run is replaced, other rows stay as they are. Rows whose keys are
// in `order` come first, in that order. Takes a lock on the folder, so that several processes may export into one file,
// and replaces the file at once. Errors (exit code 1 or 3): it cannot be read or written.
void export_results(const std::filesystem::path& given, const std::vector<RunRecord>& runs,
                    const std::vector<std::string>& order);

}  // namespace metaformer
