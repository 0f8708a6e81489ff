#include "data/sources/delimited_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

struct Columns {
  std::size_t text;
  std::size_t label;
  std::size_t width;  // of the first row
  bool in_header;
};

// The index of a column number; nothing if `field` is a name.
std::optional<std::size_t> numbered_column(const std::string& field) {
  std::size_t number = 0;
  const auto* end = field.data() + field.size();
  if (const auto [at, error] = std::from_chars(field.data(), end, number); error != std::errc{} || at != end) return {};
  if (number == 0) throw Error(ExitCode::usage, "data.text_field and data.label_field count columns from 1, not 0");
  return number - 1;
}

bool has_default_columns(const LabelledDataConfig& config) {
  const LabelledDataConfig defaults;
  return config.text_field == defaults.text_field && config.label_field == defaults.label_field;
}

constexpr std::array<std::pair<char, std::string_view>, 4> delimiters = {
    {{';', "';'"}, {'\t', "a tab"}, {',', "','"}, {'|', "'|'"}}};

// Whether a row of one column is a header with that name, separated by another character.
bool has_name(std::string_view row, const std::string& name) {
  for (const auto& [delimiter, shown] : delimiters)
    for (auto rest = row; rest.find(delimiter) != std::string_view::npos || rest.size() < row.size();) {
      const auto end = std::min(rest.find(delimiter), rest.size());
      if (trim(rest.substr(0, end)) == name) return true;
      if (end == rest.size()) break;
      rest.remove_prefix(end + 1);
    }
  return false;
}

// Advice for a row of one column that another character seems to separate; else "".
std::string delimiter_hint(std::string_view row) {
  for (const auto& [delimiter, name] : delimiters)
    if (row.find(delimiter) != std::string_view::npos)
      return fmt::format(
          "; {} looks like its delimiter, but csv is separated by ',' and tsv by tabs: set data.format, or "
          "convert the file",
          name);
  return "";
}

class TableReader {
 public:
  TableReader(LabelledTable& table, const LabelledDataConfig& config, TableBuilder& builder)
      : table_(table), config_(config), builder_(builder) {}

  void add(DelimitedRow&& row) {
    if (row.fields.size() == 1 && trim(row.fields[0]).empty()) return;  // a blank line
    if (!columns_) {
      columns_ = find_columns(row);
      table_.has_header = columns_->in_header;
      if (builder_.needs_labels() && columns_->text == columns_->label)
        throw Error(ExitCode::usage, fmt::format("data.text_field and data.label_field both mean column {} of {}",
                                                 columns_->text + 1, table_.path.string()));
      table_.has_guessed_columns = !columns_->in_header && has_default_columns(config_);
      if (columns_->in_header) return;
    }
    if (auto why = defect(row); !why.empty()) return builder_.refuse(row.line, std::move(why));
    const auto label = builder_.needs_labels() ? row.fields[columns_->label] : "";
    builder_.add(std::move(row.fields[columns_->text]), label, row.line);
  }

 private:
  Columns find_columns(const DelimitedRow& first) const;
  void check_first_row(const DelimitedRow& first) const;
  std::optional<std::size_t> find_column(const std::string& field, const DelimitedRow& header) const;
  [[noreturn]] void refuse_header(const std::string& missing, const DelimitedRow& first) const;
  std::string defect(const DelimitedRow& row) const;

  LabelledTable& table_;
  const LabelledDataConfig& config_;
  TableBuilder& builder_;
  std::optional<Columns> columns_;
};

void TableReader::check_first_row(const DelimitedRow& first) const {
  const auto fail = [&](const std::string& why) {
    throw Error(ExitCode::data, fmt::format("{}:{}: {}", table_.path.string(), first.line, why));
  };
  if (!first.defect.empty()) fail(first.defect + "; the first row must tell the columns");
  for (const auto& field : first.fields)
    if (field.find('\0') != std::string::npos) fail("NUL bytes; a table is UTF-8 text");
  if (first.fields.size() > 1) return;
  const auto& row = first.fields[0];
  if (builder_.needs_labels()) fail("one column only, where text and label need two" + delimiter_hint(row));
  if (has_name(row, config_.text_field)) fail("one column only" + delimiter_hint(row));
}

// The index of a column's name or number; nothing if the header has no such name.
std::optional<std::size_t> TableReader::find_column(const std::string& field, const DelimitedRow& header) const {
  if (const auto index = numbered_column(field)) return index;
  std::optional<std::size_t> found;
  for (std::size_t column = 0; column < header.fields.size(); ++column) {
    if (trim(header.fields[column]) != field) continue;
    if (found)
      throw Error(ExitCode::data,
                  fmt::format("{}:{}: columns {} and {} are both called {}; name the one that is meant by "
                              "its number",
                              table_.path.string(), header.line, *found + 1, column + 1, in_quotes(field)));
    found = column;
  }
  return found;
}

Columns TableReader::find_columns(const DelimitedRow& first) const {
  check_first_row(first);
  const auto width = first.fields.size();
  const auto &text_field = config_.text_field,
             &label_field = builder_.needs_labels() ? config_.label_field : text_field;
  const auto text_number = numbered_column(text_field), label_number = numbered_column(label_field);
  const bool may_have = config_.header != TableHeader::absent, must_have = config_.header == TableHeader::present;
  // Even if labels are not needed, a label's name shows that the first row is a header.
  const bool is_header = !builder_.needs_labels() && may_have && !numbered_column(config_.label_field) &&
                         find_column(config_.label_field, first).has_value();
  if (text_number && label_number) return {*text_number, *label_number, width, must_have || is_header};
  const auto find = [&](const std::string& field) {
    return may_have ? find_column(field, first) : numbered_column(field);
  };
  const auto text = find(text_field), label = find(label_field);
  if (text && label) return {*text, *label, width, true};
  if (!text && !label && !must_have && !is_header && has_default_columns(config_))
    return {0, builder_.needs_labels() ? std::size_t{1} : 0, width, false};
  refuse_header(text ? label_field : text_field, first);
}

void TableReader::refuse_header(const std::string& missing, const DelimitedRow& first) const {
  std::vector<std::string> header;
  for (const auto& field : first.fields) header.emplace_back(trim(field));
  throw Error(ExitCode::data, fmt::format("{}: no column {} in the first row, which has {}{}", table_.path.string(),
                                          in_quotes(missing), quoted_list(header), did_you_mean(missing, header)));
}

// Why its columns cannot be found, or "".
std::string TableReader::defect(const DelimitedRow& row) const {
  if (!row.defect.empty()) return row.defect;
  const auto width = row.fields.size(), needed = 1 + std::max(columns_->text, columns_->label);
  if (width < needed) return fmt::format("the row ends before column {}", needed);
  if (width > columns_->width) return fmt::format("{} columns, but the first row has {}", width, columns_->width);
  return "";
}

}  // namespace

void add_delimited_rows(std::string_view content, const LabelledDataConfig& config,
                        void (*for_each_row)(std::string_view, const UseRow&), LabelledTable& table,
                        TableBuilder& builder) {
  TableReader reader(table, config, builder);
  for_each_row(content, [&](DelimitedRow&& row) { reader.add(std::move(row)); });
}

void refuse_header_as_row(const LabelledTable& table, const LabelledDataConfig& config) {
  constexpr std::size_t fewest = 5;
  if (table.has_header || config.header != TableHeader::automatic || config.rating.positive_from) return;
  if (table.rows.size() < fewest) return;
  std::map<std::string_view, int> counts;
  for (const auto& row : table.rows) ++counts[row.label];
  // Its label occurs only once, while every other label is repeated.
  const auto& first = table.rows.front();
  const auto singles = std::count_if(counts.begin(), counts.end(), [](const auto& entry) { return entry.second == 1; });
  if (singles != 1 || counts[first.label] != 1) return;
  throw Error(ExitCode::data,
              fmt::format("{}:{}: looks like a header: no other row has the label {}. Name its columns by "
                          "data.text_field and data.label_field, or set data.header to present or absent",
                          table.path.string(), first.line, in_quotes(first.label)));
}

}  // namespace metaformer
