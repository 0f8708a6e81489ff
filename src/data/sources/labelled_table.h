#pragma once
// Texts with labels for classification, from a CSV, TSV or JSON-lines file, gzipped or not.

#include <filesystem>
#include <string>

#include "config/data_config.h"
#include "data/sources/table_builder.h"

namespace metaformer {

// The format is data.format, or that of the name without .gz: .csv; .jsonl, .json or .ndjson; else
// tab-separated. Gzipped files are recognised by their first bytes.
//
// Columns are named by data.text_field and data.label_field. Unless data.header says otherwise, two numbers mean that
// there is no header; a name must occur in the first row, which then is the header. If both default names are
// missing, there is no header, column 1 is the text and column 2 the label. In JSON lines
// (base/json_lines.h) they name members. A label there is a string, true, false, or a number; whole numbers are written
// without a fraction, so 5.0 and 5 are one label.
//
// A row is malformed when it has fewer columns than needed or more than the first row, an empty text or label, bytes
// there that are not UTF-8 or are NUL, a stray quote, with data.rating a label that is no finite number, or is no such
// line of JSON as base/json_lines.h wants. Blank lines and a byte order mark are skipped.
//
// Errors (exit code 3): unreadable, cut off or damaged gzip, more than 16 GiB (unpacked), no such column or member, no
// rows, a fraction of malformed rows above data.malformed_limit. A first row that looks like an unnamed header is
// an error too, unless data.header is set. Errors (exit code 2): column 0, both fields in one column, data.header for
// JSON lines.
LabelledTable read_labelled_table(const std::filesystem::path& path, const LabelledDataConfig& config);

// The columns that a config names, for read_text_table.
TableColumns columns_of(const LabelledDataConfig& config);

// The texts of a table, from `content`, gzipped or not, which messages call `path`; rows without labels. Only the first
// of the columns is needed; without a header that has its name it is column 1, if columns.header lets a table be
// without and both columns have their default names. Malformed rows are never an error, and a table may have no rows.
// Other errors as above.
LabelledTable read_text_table(std::string content, const std::filesystem::path& path, TableFormat format,
                              TableColumns columns);

// Adds the members that data.text_field and data.label_field name of every object in `content`, JSON lines that
// messages call `source`. Errors: as above.
void add_json_lines(std::string_view content, const LabelledDataConfig& config, const std::string& source,
                    TableBuilder& builder);

}  // namespace metaformer
