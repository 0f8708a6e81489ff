#pragma once
// Texts with labels, split.

#include <filesystem>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "data/tables.h"
#include "data/token_rows.h"

namespace metaformer {

// Texts with labels for classification, from a CSV, TSV or JSON-lines file, gzipped or not.

// The format is data.format, or that of the name without .gz: .csv; .jsonl, .json or .ndjson; else
// tab-separated. Gzipped files are recognised by their first bytes.
//
// Columns are named by data.text_field and data.label_field. Unless data.header says otherwise, two numbers mean that
// there is no header; a name must occur in the first row, which then is the header. If both default names are
// missing, there is no header, column 1 is the text and column 2 the label. In JSON lines
// (base/json.h) they name members. A label there is a string, true, false, or a number; whole numbers are written
// without a fraction, so 5.0 and 5 are one label.
//
// A row is malformed when it has fewer columns than needed or more than the first row, an empty text or label, bytes
// there that are not UTF-8 or are NUL, a stray quote, with data.rating a label that is no finite number, or is no such
// line of JSON as base/json.h wants. Blank lines and a byte order mark are skipped.
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

// Texts with labels, from the source that a config names, already split. A new source is one function called by
// load_labelled_splits.

// Whether the text, or another item with that key, is held out: always the same answer, true for about `fraction`
// of all keys.
bool is_held_out(const std::string& key, double fraction);

struct LabelledSource {
  std::string name;  // its key in the description of the splits
  std::filesystem::path path;
};

// The files that load_labelled_splits reads; downloads a missing public corpus (unless `offline`). Errors: those of a
// config that names no data, or data that exclude each other (exit code 2), and of downloads (exit code 3).
std::vector<LabelledSource> labelled_sources(const LabelledDataConfig& config, bool offline);

// Reads the public corpus that data.corpus names (from data.path, if that is set), with its splits. Otherwise reads
// data.path, and data.validation_path and data.test_path if they are set. Without data.validation_path a
// stable hash of the text holds data.validation_fraction of the rows out, so equal texts are in the same split. The
// texts of data.extra_path are added to the training texts. Errors: exit codes 2 and 3.
LabelledSplits load_labelled_splits(const LabelledDataConfig& config, bool offline);

// The texts for a tokenizer to learn from, each followed by a line break.
std::string joined_texts(const std::vector<LabelledText>& texts);

}  // namespace metaformer
