#include "data/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/archive.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

std::optional<TableFormat> format_by_name(const std::filesystem::path& path) {
  static constexpr std::array<std::pair<std::string_view, TableFormat>, 7> endings = {{{".csv", TableFormat::csv},
                                                                                       {".tsv", TableFormat::tsv},
                                                                                       {".jsonl", TableFormat::jsonl},
                                                                                       {".json", TableFormat::jsonl},
                                                                                       {".ndjson", TableFormat::jsonl},
                                                                                       {".txt", TableFormat::text},
                                                                                       {".text", TableFormat::text}}};
  auto name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (constexpr std::string_view packed = ".gz"; name.ends_with(packed)) name.resize(name.size() - packed.size());
  for (const auto& [ending, format] : endings)
    if (name.ends_with(ending)) return format;
  return std::nullopt;
}

static constexpr std::uintmax_t largest_file = std::uintmax_t{16} << 30;

TableFormat table_format(const std::filesystem::path& path, TableFormat format) {
  if (format == TableFormat::automatic) format = format_by_name(path).value_or(TableFormat::tsv);
  return format == TableFormat::text ? TableFormat::tsv : format;
}

std::string unpacked_text(std::string content, const std::filesystem::path& path) {
  if (is_gzip(content)) content = unpack_gzip(content, largest_file, path.string());
  drop_byte_order_mark(content);
  return content;
}

std::string read_packed_text(const std::filesystem::path& path, std::string& digest) {
  auto content = read_file(path, largest_file, ExitCode::data);
  digest = sha256(content);
  return unpacked_text(std::move(content), path);
}

void describe_header(nlohmann::ordered_json& description, const TableFile& table, TableFormat format) {
  if (format != TableFormat::jsonl) description["header"] = table.has_header;
}

TableHeader header_beside(const nlohmann::ordered_json& description, TableHeader header, TableFormat format) {
  const bool has_header = description.is_object() && description.value("header", false);
  return has_header && format != TableFormat::jsonl ? TableHeader::present : header;
}

void check_json_columns(const TableColumns& columns, const std::string& source) {
  const auto &first = columns.first, &second = columns.second;
  if (columns.needs_second && first.field == second.field)
    throw Error(ExitCode::usage, fmt::format("{} and {} both mean the member {} of {}", first.key, second.key,
                                             in_quotes(first.field), source));
  if (columns.header != TableHeader::automatic)
    throw Error(ExitCode::usage, fmt::format("data.header: {} holds JSON lines, which have no header", source));
}

std::string defect_of_field(std::string_view role, std::string_view text, std::size_t longest) {
  if (trim(text).empty()) return fmt::format("the {} is empty", role);
  if (text.size() > longest)
    return fmt::format("the {} has {} bytes; at most {} make sense", role, text.size(), longest);
  if (!utf8::is_valid(text.begin(), text.end())) return fmt::format("the {} is not valid UTF-8", role);
  if (text.find('\0') != std::string_view::npos) return fmt::format("the {} has NUL bytes", role);
  if (is_blank(text)) return fmt::format("the {} is empty", role);
  return "";
}

void refuse_malformed_table(const TableFile& table, std::size_t all_rows, double limit) {
  const auto malformed = table.malformed.size();
  // A quotient of whole numbers rounds as the decimal in the config does, so a fraction equal to the limit is allowed.
  if (malformed == 0 || static_cast<double>(malformed) / static_cast<double>(all_rows) <= limit) return;
  const auto& first = table.malformed.front();
  throw Error(ExitCode::data, fmt::format("{}:{}: {} ({} of {} rows are malformed; data.malformed_limit allows {})",
                                          table.path.string(), first.line, first.why, malformed, all_rows, limit));
}

void report_malformed(const TableFile& table, std::size_t all_rows) {
  if (table.malformed.empty()) return;
  const auto& first = table.malformed.front();
  log::warning("{}: {} of {} rows ({:.2g}%) are malformed and left out; the first is line {}: {}", table.path.string(),
               table.malformed.size(), all_rows,
               100 * static_cast<double>(table.malformed.size()) / static_cast<double>(all_rows), first.line,
               first.why);
}

namespace {

std::optional<double> as_rating(std::string_view label) {
  double rating = 0;
  const auto* end = label.data() + label.size();
  const auto [at, error] = std::from_chars(label.data(), end, rating);
  if (error != std::errc{} || at != end || !std::isfinite(rating)) return {};
  return rating;
}

}  // namespace

void TableBuilder::add(std::string&& text, std::string_view label, std::int64_t line) {
  label = trim(label);
  auto why = defect_of_field("text", text, longest_);
  if (why.empty() && needs_labels()) why = defect_of_field("label", label, longest_);
  if (!why.empty()) return refuse(line, std::move(why));
  if (needs_labels() && config_.rating.positive_from) {
    const auto rating = as_rating(label);
    if (!rating)
      return refuse(line, fmt::format("the label {} is not a number, as data.rating asks", in_quotes(label)));
    if (auto why = range_defect(*rating); !why.empty()) return refuse(line, std::move(why));
    label = class_of(*rating);
    if (label.empty()) {
      ++table_.left_out;
      return;
    }
  }
  table_.rows.push_back({.text = std::move(text), .label = std::string(label), .line = line});
}

void TableBuilder::refuse(std::int64_t line, std::string why) {
  table_.malformed.push_back({.line = line, .why = std::move(why)});
}

std::string TableBuilder::range_defect(double rating) const {
  const auto &lowest = config_.rating.lowest, &highest = config_.rating.highest;
  if (lowest && rating < *lowest) return fmt::format("the rating {} is below data.rating.lowest {}", rating, *lowest);
  if (highest && rating > *highest)
    return fmt::format("the rating {} is above data.rating.highest {}", rating, *highest);
  return "";
}

std::string_view TableBuilder::class_of(double rating) const {
  if (rating >= *config_.rating.positive_from) return "positive";
  if (!config_.rating.negative_to || rating <= *config_.rating.negative_to) return "negative";
  return "";
}

namespace {

struct Places {
  std::size_t first, second;
  std::size_t width;  // of the first row
  bool in_header;
};

// The index of a column number; nothing if the field is a name.
std::optional<std::size_t> numbered_place(const TableColumn& column) {
  std::size_t number = 0;
  const auto* start = column.field.data();
  const auto* end = start + column.field.size();
  if (const auto [at, error] = std::from_chars(start, end, number); error != std::errc{} || at != end) return {};
  if (number == 0) throw Error(ExitCode::usage, fmt::format("{} counts columns from 1, not 0", column.key));
  return number - 1;
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
  TableReader(const TableColumns& columns, TableFile& table, const UseColumns& use)
      : columns_(columns), table_(table), use_(use) {}

  void add(DelimitedRow&& row) {
    if (row.fields.size() == 1 && trim(row.fields[0]).empty()) return;  // a blank line
    if (!places_) {
      set_places(row);
      if (places_->in_header) return;
    }
    if (auto why = defect(row); !why.empty()) return table_.malformed.push_back({row.line, std::move(why)});
    auto second = columns_.needs_second ? std::move(row.fields[places_->second]) : "";
    use_(std::move(row.fields[places_->first]), std::move(second), row.line);
  }

  void finish() const {
    if (!places_ && columns_.header == TableHeader::present)
      throw Error(ExitCode::data, fmt::format("{}: has no row; the first one must name the columns, {} among them",
                                              table_.path.string(), in_quotes(columns_.first.field)));
  }

 private:
  void set_places(const DelimitedRow& first);
  Places find_places(const DelimitedRow& first) const;
  void check_first_row(const DelimitedRow& first) const;
  std::optional<std::size_t> find_place(const TableColumn& column, const DelimitedRow& header) const;
  [[noreturn]] void refuse_header(const std::string& missing, const DelimitedRow& first) const;
  std::string defect(const DelimitedRow& row) const;

  const TableColumns& columns_;
  TableFile& table_;
  const UseColumns& use_;
  std::optional<Places> places_;
};

void TableReader::set_places(const DelimitedRow& first) {
  places_ = find_places(first);
  if (columns_.needs_second && places_->first == places_->second)
    throw Error(ExitCode::usage, fmt::format("{} and {} both mean column {} of {}", columns_.first.key,
                                             columns_.second.key, places_->first + 1, table_.path.string()));
  table_.has_header = places_->in_header;
  table_.has_guessed_columns = !places_->in_header && columns_.are_usual;
}

void TableReader::check_first_row(const DelimitedRow& first) const {
  const auto fail = [&](const std::string& why) {
    throw Error(ExitCode::data, fmt::format("{}:{}: {}", table_.path.string(), first.line, why));
  };
  if (!first.defect.empty()) fail(first.defect + "; the first row must tell the columns");
  for (const auto& field : first.fields)
    if (field.find('\0') != std::string::npos) fail("NUL bytes; a table is UTF-8 text");
  if (first.fields.size() > 1) return;
  const auto& row = first.fields[0];
  if (columns_.needs_second)
    fail(fmt::format("one column only, where {} and {} need two{}{}", columns_.first.role, columns_.second.role,
                     columns_.advice, delimiter_hint(row)));
  if (has_name(row, columns_.first.field)) fail("one column only" + delimiter_hint(row));
}

// The index of a column's name or number; nothing if the header has no such name.
std::optional<std::size_t> TableReader::find_place(const TableColumn& column, const DelimitedRow& header) const {
  if (const auto index = numbered_place(column)) return index;
  std::optional<std::size_t> found;
  for (std::size_t place = 0; place < header.fields.size(); ++place) {
    if (trim(header.fields[place]) != column.field) continue;
    if (found)
      throw Error(ExitCode::data,
                  fmt::format("{}:{}: columns {} and {} are both called {}; name the one that is meant by "
                              "its number",
                              table_.path.string(), header.line, *found + 1, place + 1, in_quotes(column.field)));
    found = place;
  }
  return found;
}

Places TableReader::find_places(const DelimitedRow& row) const {
  check_first_row(row);
  const auto width = row.fields.size();
  const auto& first_column = columns_.first;
  const auto& second_column = columns_.needs_second ? columns_.second : first_column;
  const auto first_number = numbered_place(first_column), second_number = numbered_place(second_column);
  const bool may_have = columns_.header != TableHeader::absent, must_have = columns_.header == TableHeader::present;
  // Even if the second column is not needed, its name shows that the first row is a header.
  const bool is_header = !columns_.needs_second && may_have && !numbered_place(columns_.second) &&
                         find_place(columns_.second, row).has_value();
  const bool is_chosen = first_column.key == std::string_view("--column");  // for this table, not for others like it
  if (is_chosen && first_number && *first_number >= width) refuse_header(first_column.field, row);
  if (first_number && second_number) return {*first_number, *second_number, width, must_have || is_header};
  const auto find = [&](const TableColumn& column) {
    return may_have ? find_place(column, row) : numbered_place(column);
  };
  const auto first = find(first_column), second = find(second_column);
  if (first && second) return {*first, *second, width, true};
  if (!first && !second && !must_have && !is_header && columns_.are_usual)
    return {0, columns_.needs_second ? std::size_t{1} : 0, width, false};
  refuse_header(first ? second_column.field : first_column.field, row);
}

void TableReader::refuse_header(const std::string& missing, const DelimitedRow& first) const {
  std::vector<std::string> header;
  for (const auto& field : first.fields) header.emplace_back(trim(field));
  throw Error(ExitCode::data, fmt::format("{}: no column {} in the first row, which has {}{}{}", table_.path.string(),
                                          in_quotes(missing), quoted_list(header), columns_.absence_advice,
                                          did_you_mean(missing, header)));
}

// Why its columns cannot be found, or "".
std::string TableReader::defect(const DelimitedRow& row) const {
  if (!row.defect.empty()) return row.defect;
  const auto width = row.fields.size(), needed = 1 + std::max(places_->first, places_->second);
  if (width < needed) return fmt::format("the row ends before column {}", needed);
  if (width > places_->width) return fmt::format("{} columns, but the first row has {}", width, places_->width);
  return "";
}

}  // namespace

void for_each_table_row(std::string_view content, TableFormat format, const TableColumns& columns, TableFile& table,
                        const UseColumns& use) {
  TableReader reader(columns, table, use);
  const auto for_each_row = format == TableFormat::csv ? for_each_csv_row : for_each_tsv_row;
  for_each_row(content, [&](DelimitedRow&& row) { reader.add(std::move(row)); });
  reader.finish();
}

}  // namespace metaformer
