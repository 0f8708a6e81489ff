#pragma once
// Texts with labels, read from a CSV or TSV file for classification.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/experiment_config.h"

namespace metaformer {

struct LabelledRow {
  std::string text;   // as it stands in the file
  std::string label;  // without white space around it
  std::int64_t line;  // where the row starts, counted from 1
};

struct MalformedRow {
  std::int64_t line;
  std::string why;
};

struct LabelledTable {
  std::filesystem::path path;
  std::string sha256;  // of the whole file
  std::vector<LabelledRow> rows;
  std::vector<MalformedRow> malformed;
  bool has_header = false;
  bool has_guessed_columns = false;  // neither named nor numbered by the config
};

// Columns are named by data.text_field and data.label_field. Unless data.header says otherwise, two numbers mean that
// there is no header; a name must
// stand in the first row, which is the header then. The default names may both be missing: then there is no header,
// column 1 is the text and column 2 the label.
//
// A row is malformed when it has fewer columns than needed or more than the first row, an empty text or label, bytes
// there that are not UTF-8, or a stray quote. Blank lines and a byte order mark are skipped.
//
// Errors (exit code 3): unreadable, no such column, no rows, a share of malformed rows above data.malformed_limit.
// Errors (exit code 2): column 0, both fields in one column. A first row that looks like a header but was not named is
// an error too (exit code 3), unless data.header is set.
LabelledTable read_labelled_table(const std::filesystem::path& path, const DataConfig& config);

}  // namespace metaformer
