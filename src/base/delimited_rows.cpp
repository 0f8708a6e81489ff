#include "base/delimited_rows.h"

#include <csv.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace metaformer {

namespace {

// The line at the start of `text`, with its ending.
std::string_view first_line(std::string_view text) {
  const auto end = text.find_first_of("\r\n");
  if (end == std::string_view::npos) return text;
  return text.substr(0, end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
}

std::string defect_of_length(std::string_view line) {
  return fmt::format("the line has {} bytes; at most {} make sense", line.size(), longest_delimited_line);
}

// Feeds libcsv line by line, because it does not count lines and stops at errors. A line ends at most one row.
class CsvReader {
 public:
  explicit CsvReader(const UseRow& use) : use_(use) { start_parser(); }
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;
  ~CsvReader() { csv_free(&parser_); }

  void read(std::string_view text);

 private:
  struct Place {
    std::string_view rest;
    std::int64_t line;
  };

  void start_parser();
  std::string parse(std::string_view line, bool last);  // why the row is malformed, or ""
  void pass_on_row();
  void refuse_row(std::string why);
  static void end_field(void* bytes, std::size_t size, void* reader);
  static void end_row(int terminator, void* reader);

  const UseRow& use_;
  csv_parser parser_;
  DelimitedRow row_;
  bool row_ended_ = true;
};

void CsvReader::read(std::string_view text) {
  Place at{text, 1};
  Place second_line = at;  // of the current row: reading continues here if the row is malformed
  while (!at.rest.empty()) {
    const auto line = first_line(at.rest);
    const Place next{at.rest.substr(line.size()), at.line + 1};
    if (row_ended_) {
      row_.line = at.line;
      second_line = next;
    }
    at = next;
    if (auto why = parse(line, at.rest.empty()); !why.empty()) {
      refuse_row(std::move(why));
      at = second_line;
    } else if (row_ended_) {
      pass_on_row();
    }
  }
}

std::string CsvReader::parse(std::string_view line, bool last) {
  row_ended_ = false;
  if (line.size() > longest_delimited_line) return defect_of_length(line);
  if (csv_parse(&parser_, line.data(), line.size(), end_field, end_row, this) < line.size()) {
    if (csv_error(&parser_) != CSV_EPARSE) throw Error(ExitCode::out_of_memory, "no memory for a field of a table");
    return "a stray quote: quotes enclose a whole field and are doubled inside it";
  }
  if (last && csv_fini(&parser_, end_field, end_row, this) != 0) return "a quote is opened and never closed";
  return "";
}

void CsvReader::start_parser() {
  constexpr std::size_t growth = 1 << 16;  // the default of 128 bytes makes long fields slow
  csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL);
  csv_set_space_func(&parser_, [](unsigned char) { return 0; });  // otherwise it trims fields
  csv_set_blk_size(&parser_, growth);
}

// After parsing, not from libcsv's callback: an Error that `use_` throws must not unwind through C.
void CsvReader::pass_on_row() {
  // An empty line ends a row without fields.
  if (!row_.fields.empty()) use_({.fields = std::exchange(row_.fields, {}), .line = row_.line, .defect = {}});
}

void CsvReader::refuse_row(std::string why) {
  use_({.fields = {}, .line = row_.line, .defect = std::move(why)});
  row_.fields.clear();
  row_ended_ = true;
  csv_free(&parser_);
  start_parser();
}

void CsvReader::end_field(void* bytes, std::size_t size, void* reader) {
  static_cast<CsvReader*>(reader)->row_.fields.emplace_back(static_cast<const char*>(bytes), size);
}

void CsvReader::end_row(int, void* reader) { static_cast<CsvReader*>(reader)->row_ended_ = true; }

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> fields;
  for (;;) {
    const auto end = text.find(separator);
    fields.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return fields;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

void for_each_csv_row(std::string_view text, const UseRow& use) { CsvReader(use).read(text); }

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void for_each_tsv_row(std::string_view text, const UseRow& use) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > longest_delimited_line)
      use({.fields = {}, .line = number, .defect = defect_of_length(line)});
    else if (!line.empty())
      use({.fields = split(line, '\t'), .line = number, .defect = {}});
  }
}

}  // namespace metaformer
