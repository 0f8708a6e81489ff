#include "data/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include "base/archive.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/text.h"
#include "base/utf8.h"

namespace metaformer {

std::optional<TableFormat> format_by_name(const std::filesystem::path& path) {
  auto name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.resize(name.size() - packed.size());
  const auto ending = name.substr(std::min(name.rfind('.'), name.size()));
  if (ending == ".csv") return TableFormat::csv;
  if (ending == ".tsv") return TableFormat::tsv;
  if (ending == ".jsonl" || ending == ".json" || ending == ".ndjson") return TableFormat::jsonl;
  if (ending == ".txt" || ending == ".text") return TableFormat::text;
  return std::nullopt;
}

std::string describe_table_as_text(const std::filesystem::path& path, const std::string& shown) {
  const auto format = format_by_name(path);
  if (format != TableFormat::csv && format != TableFormat::tsv) return "";
  return fmt::format("{} has the name of a table, and is read as one text; for its classes: metaformer init table",
                     shown);
}

TableFormat table_format(const std::filesystem::path& path, TableFormat given) {
  const auto format = given == TableFormat::automatic ? format_by_name(path).value_or(TableFormat::tsv) : given;
  return format == TableFormat::text ? TableFormat::tsv : format;
}

static TextFile decompress(std::string content, const std::filesystem::path& path, std::uintmax_t largest) {
  TextFile file{.text = {}, .sha256 = sha256(content)};
  file.text = unpack(std::move(content), largest, path.string());
  drop_byte_order_mark(file.text);
  return file;
}

TextFile read_text_file(const std::filesystem::path& path, std::uintmax_t largest) {
  return decompress(read_file(path, largest, ExitCode::data), path, largest);
}

std::string Table::place(const TableRow& row) const { return fmt::format("{}:{}", path.string(), row.line); }

namespace {

// Why a text cannot be used, or "".
std::string defect_of_field(std::string_view role, std::string_view text, std::size_t longest) {
  if (trim(text).empty()) return fmt::format("the {} is empty", role);
  if (text.size() > longest)
    return fmt::format("the {} has {} bytes; at most {} make sense", role, text.size(), longest);
  if (!utf8::is_valid(text.begin(), text.end())) return fmt::format("the {} is not valid UTF-8", role);
  if (text.find('\0') != std::string_view::npos) return fmt::format("the {} has NUL bytes", role);
  if (is_blank(text)) return fmt::format("the {} is empty", role);
  return "";
}

void add_row(Table& table, const TableColumns& columns, std::int64_t line, std::vector<std::string> fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& column = columns.columns[i];
    if (column.is_label) fields[i] = std::string(trim(fields[i]));
    if (auto why = defect_of_field(column.role, fields[i], columns.longest_text); !why.empty())
      return table.malformed.push_back({line, std::move(why)});
  }
  table.rows.push_back({line, std::move(fields)});
}

// The index of a column number; nothing if the field is a name.
std::optional<std::size_t> numbered_place(const TableColumn& column) {
  const auto number = as_number<std::size_t>(column.field);
  if (number == 0U) fail_usage("{} counts columns from 1, not 0", column.key);
  return number ? std::optional(*number - 1) : std::nullopt;
}

constexpr std::array<std::pair<char, std::string_view>, 4> delimiters = {
    {{';', "';'"}, {'\t', "a tab"}, {',', "','"}, {'|', "'|'"}}};

// Whether a row of one column is a header with that name and another delimiter.
bool has_name(std::string_view row, const std::string& name) {
  return std::ranges::any_of(delimiters, [&](const auto& delimiter) {
    if (row.find(delimiter.first) == std::string_view::npos) return false;
    return std::ranges::any_of(row | std::views::split(delimiter.first), [&](const auto& field) {
      return trim(std::string_view(field.begin(), field.end())) == name;
    });
  });
}

// Advice for a row of one column that seems to have another delimiter; else "".
std::string delimiter_hint(std::string_view row) {
  for (const auto& [delimiter, name] : delimiters)
    if (row.find(delimiter) != std::string_view::npos)
      return fmt::format(
          "; {} looks like its delimiter, but csv is separated by ',' and tsv by tabs: set data.format, or convert the "
          "file",
          name);
  return "";
}

// The indices of the columns needed, in their order, found in the first row of a CSV or TSV file. Records in the table
// whether this row is a header.
std::vector<std::size_t> find_columns(const DelimitedRow& row, const TableColumns& columns, Table& table) {
  const auto fail = [&](const std::string& why) { fail_data("{}:{}: {}", table.path.string(), row.line, why); };
  const auto needed = columns.needed();
  std::vector<std::string> names;
  if (!row.defect.empty()) fail(row.defect + "; the first row must name the columns");
  for (const auto& field : row.fields) {
    if (field.find('\0') != std::string::npos) fail("NUL bytes; a table is UTF-8 text");
    names.emplace_back(trim(field));
  }
  if (names.size() == 1 && needed.size() > 1)
    fail(fmt::format("one column only, where {} and {} need two{}{}", needed[0].role, needed[1].role, columns.advice,
                     delimiter_hint(row.fields[0])));
  if (names.size() == 1 && has_name(row.fields[0], needed[0].field))
    fail("one column only" + delimiter_hint(row.fields[0]));
  const auto place_of_name = [&](const std::string& name) -> std::optional<std::size_t> {
    const auto found = std::ranges::find(names, name);
    if (found == names.end() || columns.header == TableHeader::absent) return {};
    if (const auto again = std::find(found + 1, names.end(), name); again != names.end())
      fail(fmt::format("columns {} and {} are both called {}; name the one that is meant by its number",
                       found - names.begin() + 1, again - names.begin() + 1, in_quotes(name)));
    return static_cast<std::size_t>(found - names.begin());
  };
  const auto refuse_absence = [&](const TableColumn& column) {
    fail(fmt::format("no column {} in the first row, which has {}{}{}", in_quotes(column.field), quoted_list(names),
                     columns.absence_advice, did_you_mean(column.field, names)));
  };
  std::vector<std::size_t> places;
  const TableColumn* missing = nullptr;
  table.has_header = columns.header == TableHeader::present;
  for (std::size_t i = 0; i < columns.columns.size(); ++i) {
    const auto& column = columns.columns[i];
    const auto number = numbered_place(column), place = number ? number : place_of_name(column.field);
    table.has_header = table.has_header || (place && !number);
    if (i >= needed.size()) continue;
    if (number && *number >= names.size()) refuse_absence(column);
    if (place) places.push_back(*place);
    if (!place && missing == nullptr) missing = &column;
  }
  table.has_guessed_columns = !table.has_header && columns.are_usual;
  if (missing != nullptr && (!places.empty() || !table.has_guessed_columns)) refuse_absence(*missing);
  for (auto i = places.size(); i < needed.size(); ++i) places.push_back(i);
  if (places.size() > 1 && places[0] == places[1])
    fail_usage("{} and {} both mean column {} of {}", needed[0].key, needed[1].key, places[0] + 1, table.path.string());
  return places;
}

// Why the columns of a row cannot be used, or "". `width`: columns of the first row.
std::string defect_of_row(const DelimitedRow& row, const std::vector<std::size_t>& places, std::size_t width) {
  if (!row.defect.empty()) return row.defect;
  const auto needed = 1 + std::ranges::max(places);
  if (row.fields.size() < needed) return fmt::format("the row ends before column {}", needed);
  if (row.fields.size() > width) return fmt::format("{} columns, but the first row has {}", row.fields.size(), width);
  return "";
}

void read_delimited(std::string_view content, const TableColumns& columns, Table& table) {
  std::vector<std::size_t> places;
  std::size_t width = 0;  // of the first row
  const auto use = [&](DelimitedRow&& row) {
    if (row.fields.size() == 1 && trim(row.fields[0]).empty()) return;  // a blank line
    if (width == 0) {
      places = find_columns(row, columns, table);
      width = row.fields.size();
      if (table.has_header) return;
    }
    if (auto why = defect_of_row(row, places, width); !why.empty())
      return table.malformed.push_back({row.line, std::move(why)});
    std::vector<std::string> fields;
    for (const auto place : places) fields.push_back(std::move(row.fields[place]));
    add_row(table, columns, row.line, std::move(fields));
  };
  table.format == TableFormat::csv ? for_each_csv_row(content, use) : for_each_tsv_row(content, use);
  if (width == 0 && columns.header == TableHeader::present)
    fail_data("{}: has no row; the first one must name the columns, {} among them", table.path.string(),
              in_quotes(columns.columns[0].field));
}

// Moves the field out of the member of an object. Returns the reason why it cannot, or "".
std::string take_field(nlohmann::json& member, const TableColumn& column, std::string& field) {
  if (!column.is_label || member.is_string()) {
    auto why = defect_of_text_member(member, column.field);
    if (why.empty()) field = std::move(member.get_ref<std::string&>());
    return why;
  }
  if (!member.is_boolean() && !member.is_number())
    return fmt::format("{} is {}; a label is a string, a number, true or false", in_quotes(column.field),
                       member.type_name());
  // The shortest form that is read back as the same number: 5.0 is "5", and -0.0 is "0".
  field = member.is_number_float() ? fmt::format("{}", member.get<double>() + 0.0) : member.dump();
  return "";
}

void read_json_lines(std::string_view content, const TableColumns& columns, Table& table) {
  const auto needed = columns.needed();
  const auto path = table.path.string();
  if (needed.size() > 1 && needed[0].field == needed[1].field)
    fail_usage("{} and {} both mean the member {} of {}", needed[0].key, needed[1].key, in_quotes(needed[0].field),
               path);
  if (columns.header != TableHeader::automatic)
    fail_usage("data.header: {} holds JSON lines, which have no header", path);
  std::vector<std::string> names;
  for (const auto& column : needed) names.push_back(column.field);
  const auto refuse = [&](std::int64_t line, std::string why) { table.malformed.push_back({line, std::move(why)}); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    std::vector<std::string> fields(members.size());
    for (std::size_t i = 0; i < members.size(); ++i)
      if (auto why = take_field(*members[i], needed[i], fields[i]); !why.empty()) return refuse(line, std::move(why));
    add_row(table, columns, line, std::move(fields));
  };
  for_each_json_object(content, names, path, use, refuse);
}

}  // namespace

Table read_table(std::string content, const std::filesystem::path& path, TableFormat format,
                 const TableColumns& columns) {
  const auto file = decompress(std::move(content), path, largest_text_file);
  Table table{.path = path, .sha256 = file.sha256, .format = table_format(path, format)};
  if (table.format == TableFormat::jsonl) {
    read_json_lines(file.text, columns, table);
  } else {
    auto of_rows = columns;
    if (columns.follows_header) of_rows.header = TableHeader::present;
    read_delimited(file.text, of_rows, table);
  }
  return table;
}

Table read_table(const std::filesystem::path& path, TableFormat format, const TableColumns& columns) {
  return read_table(read_file(path, largest_text_file, ExitCode::data), path, format, columns);
}

void report_malformed(const std::string& source, std::size_t malformed, std::size_t all, const std::string& first,
                      std::string_view units, double limit) {
  if (malformed == 0) return;
  // A quotient of whole numbers rounds as the decimal in the config does, so a fraction equal to the limit is allowed.
  const auto fraction = static_cast<double>(malformed) / static_cast<double>(all);
  if (fraction > limit)
    fail_data("{} ({} of {} {} are malformed; data.malformed_limit allows {})", first, malformed, all, units, limit);
  log::warning("{}: {} of {} {} ({:.2g}%) are malformed and left out; the first is {}", source, malformed, all, units,
               100 * fraction, first);
}

void check_rows(const Table& table, const TableColumns& columns, double limit, const std::string& why_empty) {
  const auto path = table.path.string();
  if (!table.malformed.empty()) {
    const auto& [line, why] = table.malformed.front();
    report_malformed(path, table.malformed.size(), table.all_rows(), fmt::format("{}:{}: {}", path, line, why), "rows",
                     limit);
  }
  if (table.rows.empty()) fail_data("{}: {}", path, why_empty);
  const auto &first = columns.columns[0], &second = columns.columns[1];
  if (table.has_guessed_columns)
    log::warning("{}: no header with '{}' and '{}'; taking column 1 as the {} and column 2 as the {}", path,
                 first.field, second.field, first.role, second.role);
}

nlohmann::ordered_json description_of(const Table& table, const char* units) {
  nlohmann::ordered_json description = {{"path", table.path.string()},
                                        {"sha256", table.sha256},
                                        {units, table.rows.size()},
                                        {"malformed", table.malformed.size()}};
  if (table.format != TableFormat::jsonl) description["header"] = table.has_header;
  return description;
}

bool has_training_header(const nlohmann::ordered_json& descriptions) {
  return descriptions.contains("train") && descriptions["train"].value("header", false);
}

}  // namespace metaformer
