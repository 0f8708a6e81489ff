#pragma once
// Texts with labels for classification, from a CSV, TSV or JSON-lines file, gzipped or not.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/data_config.h"

namespace metaformer {

struct LabelledRow {
  std::string text;   // as it stands in the file
  std::string label;  // without white space around it; with data.rating "positive" or "negative"
  std::int64_t line;  // where the row starts, counted from 1
};

struct MalformedRow {
  std::int64_t line;
  std::string why;
};

struct LabelledTable {
  std::filesystem::path path;
  std::string sha256;  // of the whole file, as it lies there
  std::vector<LabelledRow> rows;
  std::vector<MalformedRow> malformed;
  std::size_t left_out = 0;  // rows whose rating lies between data.rating.negative_to and positive_from
  bool has_header = false;
  bool has_guessed_columns = false;  // neither named nor numbered by the config

  std::size_t all_rows() const { return rows.size() + malformed.size() + left_out; }
};

// Whether the rows of a table need labels, or texts only, which are to be classified.
enum class Labels { needed, none };

// The format is data.format, or else what the name says once .gz is taken off: .csv; .jsonl, .json or .ndjson; else
// tab-separated. Whether the file is gzipped is told by its first bytes.
//
// Columns are named by data.text_field and data.label_field. Unless data.header says otherwise, two numbers mean that
// there is no header; a name must stand in the first row, which is the header then. The default names may both be
// missing: then there is no header, column 1 is the text and column 2 the label. In JSON lines (data/json_lines.h) they
// name members.
//
// A row is malformed when it has fewer columns than needed or more than the first row, an empty text or label, bytes
// there that are not UTF-8 or are NUL, a stray quote, with data.rating a label that is no finite number, or is no such
// line of JSON as data/json_lines.h wants. Blank lines and a byte order mark are skipped.
//
// Errors (exit code 3): unreadable, cut off or damaged gzip, more than 16 GiB (unpacked), no such column or member, no
// rows, a share of malformed rows above data.malformed_limit. A first row that looks like a header but was not named is
// an error too, unless data.header is set. Errors (exit code 2): column 0, both fields in one column, data.header for
// JSON lines.
LabelledTable read_labelled_table(const std::filesystem::path& path, const DataConfig& config);

// The texts of a table without looking at its labels, out of `content`, gzipped or not, which messages call `path`. Of
// the columns only that of the texts is needed; without a header that has the default name it is column 1. Malformed
// rows are no error, whatever their number, and a table may have no rows. Other errors as above.
LabelledTable read_text_table(std::string content, const std::filesystem::path& path, const DataConfig& config);

}  // namespace metaformer
