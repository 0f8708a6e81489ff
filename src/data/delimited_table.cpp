#include "data/delimited_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace metaformer {

namespace {

struct Columns {
  std::size_t text;
  std::size_t label;
  std::size_t width;  // of the first row
  bool in_header;
};

// The index that a column number stands for; nothing when `field` is a name.
std::optional<std::size_t> numbered_column(const std::string& field) {
  std::size_t number = 0;
  const auto* end = field.data() + field.size();
  if (const auto [at, error] = std::from_chars(field.data(), end, number); error != std::errc{} || at != end) return {};
  if (number == 0) throw Error(ExitCode::usage, "data.text_field and data.label_field count columns from 1, not 0");
  return number - 1;
}

std::optional<std::size_t> find_column(const std::string& field, const std::vector<std::string>& header) {
  if (const auto index = numbered_column(field)) return index;
  const auto found = std::find(header.begin(), header.end(), field);
  if (found == header.end()) return {};
  return static_cast<std::size_t>(found - header.begin());
}

bool has_default_columns(const DataConfig& config) {
  const DataConfig defaults;
  return config.text_field == defaults.text_field && config.label_field == defaults.label_field;
}

class TableReader {
 public:
  TableReader(LabelledTable& table, const DataConfig& config, TableBuilder& builder)
      : table_(table), config_(config), builder_(builder) {}

  void add(DelimitedRow&& row) {
    if (row.fields.size() == 1 && trim(row.fields[0]).empty()) return;  // a blank line
    if (!columns_) {
      columns_ = find_columns(row);
      table_.has_header = columns_->in_header;
      if (columns_->text == columns_->label)
        throw Error(ExitCode::usage, fmt::format("data.text_field and data.label_field both mean column {} of {}",
                                                 columns_->text + 1, table_.path.string()));
      table_.has_guessed_columns = !columns_->in_header && has_default_columns(config_);
      if (columns_->in_header) return;
    }
    if (auto why = defect(row); !why.empty()) return builder_.refuse(row.line, std::move(why));
    builder_.add(std::move(row.fields[columns_->text]), row.fields[columns_->label], row.line);
  }

 private:
  Columns find_columns(const DelimitedRow& first) const;
  [[noreturn]] void refuse_header(const std::string& missing, const std::vector<std::string>& header) const;
  std::string defect(const DelimitedRow& row) const;

  LabelledTable& table_;
  const DataConfig& config_;
  TableBuilder& builder_;
  std::optional<Columns> columns_;
};

Columns TableReader::find_columns(const DelimitedRow& first) const {
  if (!first.defect.empty())
    throw Error(ExitCode::data, fmt::format("{}:{}: {}; the first row must tell the columns", table_.path.string(),
                                            first.line, first.defect));
  for (const auto& field : first.fields)
    if (field.find('\0') != std::string::npos)
      throw Error(ExitCode::data,
                  fmt::format("{}:{}: NUL bytes; a table is UTF-8 text", table_.path.string(), first.line));
  const auto width = first.fields.size();
  const auto text_number = numbered_column(config_.text_field), label_number = numbered_column(config_.label_field);
  const bool may_have = config_.header != TableHeader::absent, must_have = config_.header == TableHeader::present;
  if (text_number && label_number) return {*text_number, *label_number, width, must_have};
  std::vector<std::string> header;
  for (const auto& field : first.fields) header.emplace_back(trim(field));
  const auto find = [&](const std::string& field) {
    return may_have ? find_column(field, header) : numbered_column(field);
  };
  const auto text = find(config_.text_field), label = find(config_.label_field);
  if (text && label) return {*text, *label, width, true};
  if (!text && !label && !must_have && has_default_columns(config_)) return {0, 1, width, false};
  refuse_header(text ? config_.label_field : config_.text_field, header);
}

void TableReader::refuse_header(const std::string& missing, const std::vector<std::string>& header) const {
  throw Error(ExitCode::data, fmt::format("{}: no column {} in the first row, which has {}{}", table_.path.string(),
                                          in_quotes(missing), quoted_list(header), did_you_mean(missing, header)));
}

// Why its columns cannot be told, or "".
std::string TableReader::defect(const DelimitedRow& row) const {
  if (!row.defect.empty()) return row.defect;
  const auto width = row.fields.size(), needed = 1 + std::max(columns_->text, columns_->label);
  if (width < needed) return fmt::format("the row ends before column {}", needed);
  if (width > columns_->width) return fmt::format("{} columns, but the first row has {}", width, columns_->width);
  return "";
}

}  // namespace

void add_delimited_rows(std::string_view content, const DataConfig& config,
                        void (*for_each_row)(std::string_view, const UseRow&), LabelledTable& table,
                        TableBuilder& builder) {
  TableReader reader(table, config, builder);
  for_each_row(content, [&](DelimitedRow&& row) { reader.add(std::move(row)); });
}

void refuse_header_as_row(const LabelledTable& table, const DataConfig& config) {
  constexpr std::size_t fewest = 5;
  if (table.has_header || config.header != TableHeader::automatic || config.rating.positive_from) return;
  if (table.rows.size() < fewest) return;
  std::map<std::string_view, int> counts;
  for (const auto& row : table.rows) ++counts[row.label];
  // Its label stands nowhere else, where every other one is repeated.
  const auto& first = table.rows.front();
  const auto singles = std::count_if(counts.begin(), counts.end(), [](const auto& entry) { return entry.second == 1; });
  if (singles != 1 || counts[first.label] != 1) return;
  throw Error(ExitCode::data,
              fmt::format("{}:{}: looks like a header: no other row has the label {}. Name its columns by "
                          "data.text_field and data.label_field, or set data.header to present or absent",
                          table.path.string(), first.line, in_quotes(first.label)));
}

}  // namespace metaformer
