#pragma once
// Tables of two texts a row, whatever the texts are: the file, its columns, and the rows that cannot be used.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

// A column, or a member of JSON lines, as the config names it.
struct TableColumn {
  std::string field;      // its name, or in CSV and TSV its number counted from 1
  std::string_view key;   // of `field`, for messages: "data.text_field"
  std::string_view role;  // for messages: "text"
};

// A longer text means that the file has no line ends, or is no table; a text of a pair, of which a test compares each
// with another one, as it is in files of lines.
constexpr std::size_t longest_table_text = std::size_t{16} << 20, longest_pair_text = std::size_t{1} << 20;

struct TableColumns {
  TableColumn first, second;
  bool are_usual = false;  // both fields have their default values: without a header they are columns 1 and 2
  TableHeader header = TableHeader::automatic;
  bool needs_second = true;              // false: its name only shows that the first row is a header
  std::string_view advice = {};          // where the second may be instead, for the message on a table of one column
  std::string_view absence_advice = {};  // for the message on a name that is not in the first row
  std::size_t longest_text = longest_table_text;
};

struct MalformedRow {
  std::int64_t line;
  std::string why;
};

struct TableFile {
  std::filesystem::path path;
  std::string sha256;  // of the whole file, before unpacking
  std::vector<MalformedRow> malformed;
  bool has_header = false;
  bool has_guessed_columns = false;  // neither named nor numbered by the config
};

// `format`, or if that is `auto` that of the name; tsv for other names and for text.
TableFormat table_format(const std::filesystem::path& path, TableFormat format);

// `content` unpacked if it is gzipped, and without byte order mark. Errors (exit code 3) name `path`: cut off or
// damaged gzip, more than 16 GiB.
std::string unpacked_text(std::string content, const std::filesystem::path& path);

// The same of a file, whose digest before unpacking becomes `digest`. Errors: as above, and unreadable.
std::string read_packed_text(const std::filesystem::path& path, std::string& digest);

// Notes in the description of a table that was read whether it has a header, unless it is JSON lines. Predictions read
// that.
void describe_header(nlohmann::ordered_json& description, const TableFile& table, TableFormat format);

// data.header for another table than that for training, which `description` is of: where that one has a header, this
// one must have the same names.
TableHeader header_beside(const nlohmann::ordered_json& description, TableHeader header, TableFormat format);

// Errors (exit code 2): both columns are one member of JSON lines, which messages call `source`; data.header is set,
// though they have none.
void check_json_columns(const TableColumns& columns, const std::string& source);

// Why a text cannot be used, or "": it is empty, has more than `longest` bytes, is not UTF-8, or has NUL bytes. `role`
// is its name in the answer.
std::string defect_of_field(std::string_view role, std::string_view text, std::size_t longest);

// Errors (exit code 3): the malformed rows are a larger fraction of `all_rows` than data.malformed_limit, `limit`.
void refuse_malformed_table(const TableFile& table, std::size_t all_rows, double limit);

// Warns of malformed rows, if there are any.
void report_malformed(const TableFile& table, std::size_t all_rows);

}  // namespace metaformer
