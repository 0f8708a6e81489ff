#include "data/labelled_table.h"

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "data/delimited_rows.h"
#include "data/digest.h"

namespace metaformer {

namespace {

constexpr std::uintmax_t largest_table = std::uintmax_t{16} << 30;

std::string_view trim(std::string_view text) {
  constexpr std::string_view white_space = " \t\n\v\f\r";
  const auto first = std::min(text.find_first_not_of(white_space), text.size());
  return text.substr(first, text.find_last_not_of(white_space) + 1 - first);
}

bool is_csv(const std::filesystem::path& path, TableFormat format) {
  if (format != TableFormat::automatic) return format == TableFormat::csv;
  auto ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return ending == ".csv";
}

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
  TableReader(LabelledTable& table, const DataConfig& config) : table_(table), config_(config) {}

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
    if (auto why = defect(row); !why.empty()) {
      table_.malformed.push_back({.line = row.line, .why = std::move(why)});
    } else {
      table_.rows.push_back({.text = std::move(row.fields[columns_->text]),
                             .label = std::string(trim(row.fields[columns_->label])),
                             .line = row.line});
    }
  }

 private:
  Columns find_columns(const DelimitedRow& first) const;
  [[noreturn]] void refuse_header(const std::string& missing, const std::vector<std::string>& header) const;
  std::string defect(const DelimitedRow& row) const;

  LabelledTable& table_;
  const DataConfig& config_;
  std::optional<Columns> columns_;
};

Columns TableReader::find_columns(const DelimitedRow& first) const {
  if (!first.defect.empty())
    throw Error(ExitCode::data, fmt::format("{}:{}: {}; the first row must tell the columns", table_.path.string(),
                                            first.line, first.defect));
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
  std::vector<std::string> shown;
  constexpr std::size_t most_shown = 10;
  for (std::size_t i = 0; i < std::min(header.size(), most_shown); ++i) shown.push_back(in_quotes(header[i]));
  if (header.size() > most_shown) shown.push_back(fmt::format("... ({} in all)", header.size()));
  throw Error(ExitCode::data, fmt::format("{}: no column {} in the first row, which has {}{}", table_.path.string(),
                                          in_quotes(missing), fmt::join(shown, ", "), did_you_mean(missing, header)));
}

// Why the row is malformed, or "".
std::string TableReader::defect(const DelimitedRow& row) const {
  if (!row.defect.empty()) return row.defect;
  const auto width = row.fields.size(), needed = 1 + std::max(columns_->text, columns_->label);
  if (width < needed) return fmt::format("the row ends before column {}", needed);
  if (width > columns_->width) return fmt::format("{} columns, but the first row has {}", width, columns_->width);
  for (const auto& [name, index] : {std::pair("text", columns_->text), std::pair("label", columns_->label)}) {
    const auto& field = row.fields[index];
    if (trim(field).empty()) return fmt::format("the {} is empty", name);
    if (!utf8::is_valid(field.begin(), field.end())) return fmt::format("the {} is not valid UTF-8", name);
  }
  return "";
}

void require_rows(const LabelledTable& table, double malformed_limit) {
  const auto malformed = table.malformed.size(), all = malformed + table.rows.size();
  // A quotient of whole numbers rounds as the decimal in the config does, so a share that equals the limit is allowed.
  if (malformed > 0 && static_cast<double>(malformed) / static_cast<double>(all) > malformed_limit) {
    const auto& first = table.malformed.front();
    throw Error(ExitCode::data,
                fmt::format("{}:{}: {} ({} of {} rows are malformed; data.malformed_limit allows {})",
                            table.path.string(), first.line, first.why, malformed, all, malformed_limit));
  }
  if (table.rows.empty()) throw Error(ExitCode::data, table.path.string() + ": the table has no rows");
}

// A header taken for a row would add a class. Its label stands nowhere else, where every other one is repeated.
void refuse_header_as_row(const LabelledTable& table, const DataConfig& config) {
  constexpr std::size_t fewest = 5;
  if (table.has_header || config.header != TableHeader::automatic || table.rows.size() < fewest) return;
  std::map<std::string_view, int> counts;
  for (const auto& row : table.rows) ++counts[row.label];
  const auto& first = table.rows.front();
  const auto singles = std::count_if(counts.begin(), counts.end(), [](const auto& entry) { return entry.second == 1; });
  if (singles != 1 || counts[first.label] != 1) return;
  throw Error(ExitCode::data,
              fmt::format("{}:{}: looks like a header: no other row has the label {}. Name its columns by "
                          "data.text_field and data.label_field, or set data.header to present or absent",
                          table.path.string(), first.line, in_quotes(first.label)));
}

}  // namespace

LabelledTable read_labelled_table(const std::filesystem::path& path, const DataConfig& config) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  const auto content = read_file(path, largest_table, ExitCode::data);
  LabelledTable table{.path = path, .sha256 = sha256(content), .rows = {}, .malformed = {}};
  std::string_view text = content;
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  TableReader reader(table, config);
  const auto for_each_row = is_csv(path, config.format) ? for_each_csv_row : for_each_tsv_row;
  for_each_row(text, [&](DelimitedRow&& row) { reader.add(std::move(row)); });
  require_rows(table, config.malformed_limit);
  refuse_header_as_row(table, config);
  return table;
}

}  // namespace metaformer
