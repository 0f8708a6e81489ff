#include "data/sources/labelled_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/json_lines.h"
#include "base/text.h"
#include "data/sources/delimited_table.h"

namespace metaformer {

namespace {

void require_rows(const LabelledTable& table, double malformed_limit) {
  refuse_malformed_table(table, table.all_rows(), malformed_limit);
  if (!table.rows.empty()) return;
  throw Error(ExitCode::data,
              table.left_out == 0
                  ? table.path.string() + ": the table has no rows"
                  : fmt::format("{}: all {} ratings lie between data.rating.negative_to and data.rating.positive_from",
                                table.path.string(), table.left_out));
}

// A number as a label: whole ones without a fraction, others as short as they can be read back from.
std::string number_label(double value) {
  constexpr double exact = 0x1p53;
  if (value == std::trunc(value) && std::abs(value) < exact) return std::to_string(static_cast<std::int64_t>(value));
  return fmt::format("{}", value);
}

std::optional<std::string> as_label(const nlohmann::json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_float()) return number_label(value.get<double>());
  if (value.is_number()) return value.dump();
  return {};
}

// A header that is read as a row would add a class. Not checked if data.header or data.rating is set.
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

}  // namespace

TableColumns columns_of(const LabelledDataConfig& config) {
  const LabelledDataConfig usual;
  return {.first = {config.text_field, "data.text_field", "text"},
          .second = {config.label_field, "data.label_field", "label"},
          .are_usual = config.text_field == usual.text_field && config.label_field == usual.label_field,
          .header = config.header};
}

void add_json_lines(std::string_view content, const LabelledDataConfig& config, const std::string& source,
                    TableBuilder& builder) {
  const auto &text_field = config.text_field, &label_field = config.label_field;
  check_json_columns(columns_of(config), source);
  const auto refuse = [&](std::int64_t line, std::string why) { builder.refuse(line, std::move(why)); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    auto& text = *members[0];
    if (auto why = defect_of_text_member(text, text_field); !why.empty()) return refuse(line, std::move(why));
    const auto label = as_label(*members[1]);
    if (!label)
      return refuse(line, fmt::format("{} is {}; a label is a string, a number, true or false", in_quotes(label_field),
                                      members[1]->type_name()));
    builder.add(std::move(text.get_ref<std::string&>()), *label, line);
  };
  for_each_json_object(content, {text_field, label_field}, source, use, refuse);
}

LabelledTable read_labelled_table(const std::filesystem::path& path, const LabelledDataConfig& config) {
  LabelledTable table;
  table.path = path;
  const auto content = read_packed_text(path, table.sha256);
  const auto format = table_format(path, config.format);
  TableBuilder builder(table, config);
  if (format == TableFormat::jsonl) {
    add_json_lines(content, config, path.string(), builder);
  } else {
    const auto use = [&](std::string&& text, std::string&& label, std::int64_t line) {
      builder.add(std::move(text), label, line);
    };
    for_each_table_row(content, format, columns_of(config), table, use);
  }
  require_rows(table, config.malformed_limit);
  if (format != TableFormat::jsonl) refuse_header_as_row(table, config);
  return table;
}

LabelledTable read_text_table(std::string content, const std::filesystem::path& path, TableFormat format,
                              TableColumns columns) {
  LabelledTable table;
  table.path = path;
  table.sha256 = sha256(content);
  content = unpacked_text(std::move(content), path);
  const LabelledDataConfig no_ratings;
  TableBuilder builder(table, no_ratings, Labels::none, columns.longest_text);
  columns.needs_second = false;
  format = table_format(path, format);
  if (format != TableFormat::jsonl) {
    for_each_table_row(content, format, columns, table, [&](std::string&& text, std::string&&, std::int64_t line) {
      builder.add(std::move(text), "", line);
    });
    return table;
  }
  check_json_columns(columns, path.string());
  const auto refuse = [&](std::int64_t line, std::string why) { builder.refuse(line, std::move(why)); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    auto& text = *members[0];
    if (auto why = defect_of_text_member(text, columns.first.field); !why.empty()) return refuse(line, std::move(why));
    builder.add(std::move(text.get_ref<std::string&>()), "", line);
  };
  for_each_json_object(content, {columns.first.field}, path.string(), use, refuse);
  return table;
}

}  // namespace metaformer
