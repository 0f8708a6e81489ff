#pragma once
// Tables of two named columns: CSV, TSV, JSON lines.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/data_config.h"

namespace metaformer {

// Derives the format of a file from its name.

// csv for .csv, tsv for .tsv, jsonl for .jsonl, .json and .ndjson, text for .txt and .text, each also followed by .gz,
// in letters of any case; nothing for other names.
std::optional<TableFormat> format_by_name(const std::filesystem::path& path);

// Tables of two texts a row, whatever the texts are: the file, its columns, and the rows that cannot be used.

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

// Checks the rows that the readers of formats find, and adds them to a LabelledTable.
struct LabelledRow {
  std::string text;   // as in the file
  std::string label;  // without white space around it; with data.rating "positive" or "negative"
  std::int64_t line;  // where the row starts, counted from 1
};

struct LabelledTable : TableFile {
  std::vector<LabelledRow> rows;
  std::size_t left_out = 0;  // rows whose rating lies between data.rating.negative_to and positive_from

  std::size_t all_rows() const { return rows.size() + malformed.size() + left_out; }
};

// Whether the rows of a table need labels, or only texts (for prediction).
enum class Labels { needed, none };

class TableBuilder {
 public:
  // Both must outlive the builder. Labels::none: rows have texts only. `longest`: bytes of a text.
  TableBuilder(LabelledTable& table, const LabelledDataConfig& config, Labels labels = Labels::needed,
               std::size_t longest = longest_table_text)
      : table_(table), config_(config), labels_(labels), longest_(longest) {}

  // A row; malformed when its text or label is empty, too long, not UTF-8, or has NUL bytes, or when data.rating is set
  // and the label is no finite number. White space around the label is left out.
  void add(std::string&& text, std::string_view label, std::int64_t line);

  // A row that its format cannot separate into fields, and why.
  void refuse(std::int64_t line, std::string why);

 private:
  bool needs_labels() const { return labels_ == Labels::needed; }

  // Why the rating is invalid, or "".
  std::string range_defect(double rating) const;

  // "positive", "negative", or "" for a rating between the two.
  std::string_view class_of(double rating) const;

  LabelledTable& table_;
  const LabelledDataConfig& config_;
  Labels labels_;
  std::size_t longest_;
};

// Finds the two columns that are asked for in a CSV or TSV file.

// `second` is empty if the columns need no second.
using UseColumns = std::function<void(std::string&& first, std::string&& second, std::int64_t line)>;

// Calls `use` with the two columns of every row of `content`, csv if `format` is that, else tsv. Adds rows without them
// to the malformed ones of `table`, and sets has_header and has_guessed_columns. Errors: see read_labelled_table.
void for_each_table_row(std::string_view content, TableFormat format, const TableColumns& columns, TableFile& table,
                        const UseColumns& use);

}  // namespace metaformer
