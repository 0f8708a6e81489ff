#pragma once
// Tables of named columns: CSV, TSV and JSON lines, compressed or not.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

// csv for .csv, tsv for .tsv, jsonl for .jsonl, .json and .ndjson, text for .txt and .text, each also followed by .gz
// or .zst, in letters of any case; nothing for other names.
std::optional<TableFormat> format_by_name(const std::filesystem::path& path);

// The format in which a table is read: the given one; if that is automatic, by the name. Columns of other files are
// separated by tabs.
TableFormat table_format(const std::filesystem::path& path, TableFormat given = TableFormat::automatic);

constexpr std::uintmax_t largest_text_file = std::uintmax_t{16} << 30;

// A file of text, decompressed if its first bytes are those of gzip or Zstandard, without byte order mark.
struct TextFile {
  std::string text;
  std::string sha256;  // of the file before decompression
};

// Errors (exit code 3) name `path`: unreadable, cut off or damaged gzip, more than `largest` bytes.
TextFile read_text_file(const std::filesystem::path& path, std::uintmax_t largest = largest_text_file);

// The warning that a CSV or TSV file, by its name, is read as one text; "" for other names. `shown`: the name in the
// warning.
std::string describe_table_as_text(const std::filesystem::path& path, const std::string& shown);

// A column, or a member of JSON lines, as the config names it.
struct TableColumn {
  std::string field;      // its name, or in CSV and TSV its number counted from 1
  std::string_view key;   // of `field`, for messages: "data.text_field"
  std::string_view role;  // for messages: "text"
  bool is_label = false;  // without white space around it; in JSON lines also a number, true or false
};

// A longer text means that the file has no line ends, or is no table. Texts of pairs have a lower limit, also in files
// of lines, because a test compares each with another text.
constexpr std::size_t longest_table_text = std::size_t{16} << 20, longest_pair_text = std::size_t{1} << 20;

struct TableColumns {
  std::vector<TableColumn> columns;
  bool are_usual = false;   // all fields have their default values: without a header they are columns 1, 2, ...
  bool only_first = false;  // only the first is needed; names of others only show that the first row is a header
  TableHeader header = TableHeader::automatic;
  bool follows_header = false;      // the training table has a header, so this one must, unless it is JSON lines
  std::string advice = {};          // for the message on a table of one column
  std::string absence_advice = {};  // for the message on a name that is not in the first row
  std::size_t longest_text = longest_table_text;

  std::span<const TableColumn> needed() const { return std::span(columns).first(only_first ? 1 : columns.size()); }
};

struct TableRow {
  std::int64_t line;                // where it starts, counted from 1
  std::vector<std::string> fields;  // of the columns needed, in their order
};

struct MalformedRow {
  std::int64_t line;
  std::string why;
};

struct Table {
  std::filesystem::path path;
  std::string sha256;  // of the whole file, before decompression
  TableFormat format = TableFormat::tsv;
  std::vector<TableRow> rows;
  std::vector<MalformedRow> malformed;
  std::size_t left_out = 0;  // rows with ratings between the two classes (data/labelled.h)
  bool has_header = false;
  bool has_guessed_columns = false;  // neither named nor numbered by the config

  std::size_t all_rows() const { return rows.size() + malformed.size() + left_out; }
  std::string place(const TableRow& row) const;  // "reviews.csv:17"
};

// The format is `format` or, if that is auto, the format of the name; tsv for other names and for text.
//
// Unless columns.header says otherwise: if all fields are numbers, there is no header; a name must occur in the first
// row, which then is the header. If all names are the default ones and none of them occurs, there is no header, and the
// first columns are used. In JSON lines (base/json.h) fields name members: a text is a string; a label also true,
// false, or a number, where 5.0 and 5 are one label.
//
// A row is malformed when it has fewer columns than needed or more than the first row, a stray quote, a field that is
// empty, too long, not UTF-8 or has NUL bytes, or is a malformed line of JSON (base/json.h). Blank lines are skipped.
//
// Errors (exit code 3): those of read_text_file; no such column or member, two columns of that name, a first row that
// is no row of this format or has one column where two are needed. Errors (exit code 2): column 0, two fields in one
// column, data.header for JSON lines.
Table read_table(const std::filesystem::path& path, TableFormat format, const TableColumns& columns);

// The same for the content of a file, compressed or not.
Table read_table(std::string content, const std::filesystem::path& path, TableFormat format,
                 const TableColumns& columns);

// Warns of malformed rows, documents or files (`units`); `first`: the place and the defect of the first one. Errors
// (exit code 3): their fraction is larger than data.malformed_limit, `limit`.
void report_malformed(const std::string& source, std::size_t malformed, std::size_t all, const std::string& first,
                      std::string_view units, double limit);

// The same for a table; also warns of guessed columns. Errors (exit code 3): there are no rows; `why_empty` is the
// message.
void check_rows(const Table& table, const TableColumns& columns, double limit,
                const std::string& why_empty = "the table has no rows");

// The entry of a table in environment.json: path, sha256, number of rows (under the name `units`), malformed rows and,
// unless it is JSON lines, whether it has a header, which predictions need.
nlohmann::ordered_json description_of(const Table& table, const char* units);

// Whether the training table has a header, according to the descriptions of the tables.
bool has_training_header(const nlohmann::ordered_json& descriptions);

}  // namespace metaformer
