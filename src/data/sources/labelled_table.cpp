#include "data/sources/labelled_table.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/gzip.h"
#include "base/json_lines.h"
#include "base/text.h"
#include "data/sources/delimited_table.h"
#include "data/sources/file_format.h"

namespace metaformer {

namespace {

constexpr std::uintmax_t largest_table = std::uintmax_t{16} << 30;

void require_rows(const LabelledTable& table, double malformed_limit) {
  const auto malformed = table.malformed.size(), all = table.all_rows();
  // A quotient of whole numbers rounds as the decimal in the config does, so a fraction equal to the limit is allowed.
  if (malformed > 0 && static_cast<double>(malformed) / static_cast<double>(all) > malformed_limit) {
    const auto& first = table.malformed.front();
    throw Error(ExitCode::data,
                fmt::format("{}:{}: {} ({} of {} rows are malformed; data.malformed_limit allows {})",
                            table.path.string(), first.line, first.why, malformed, all, malformed_limit));
  }
  if (!table.rows.empty()) return;
  throw Error(ExitCode::data,
              table.left_out == 0
                  ? table.path.string() + ": the table has no rows"
                  : fmt::format("{}: all {} ratings lie between data.rating.negative_to and data.rating.positive_from",
                                table.path.string(), table.left_out));
}

TableFormat table_format(const std::filesystem::path& path, TableFormat format) {
  if (format == TableFormat::automatic) format = format_by_name(path).value_or(TableFormat::tsv);
  return format == TableFormat::text ? TableFormat::tsv : format;
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

}  // namespace

void add_json_lines(std::string_view content, const LabelledDataConfig& config, const std::string& source,
                    TableBuilder& builder) {
  const auto &text_field = config.text_field, &label_field = config.label_field;
  if (builder.needs_labels() && text_field == label_field)
    throw Error(ExitCode::usage, fmt::format("data.text_field and data.label_field both mean the member {} of {}",
                                             in_quotes(text_field), source));
  if (config.header != TableHeader::automatic)
    throw Error(ExitCode::usage, fmt::format("data.header: {} holds JSON lines, which have no header", source));
  const auto refuse = [&](std::int64_t line, std::string why) { builder.refuse(line, std::move(why)); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    auto& text = *members[0];
    if (auto why = defect_of_text_member(text, text_field); !why.empty()) return refuse(line, std::move(why));
    const auto label = builder.needs_labels() ? as_label(*members[1]) : std::optional<std::string>("");
    if (!label)
      return refuse(line, fmt::format("{} is {}; a label is a string, a number, true or false", in_quotes(label_field),
                                      members[1]->type_name()));
    builder.add(std::move(text.get_ref<std::string&>()), *label, line);
  };
  std::vector<std::string> names = {text_field};
  if (builder.needs_labels()) names.push_back(label_field);
  for_each_json_object(content, names, source, use, refuse);
}

namespace {

void read_rows(std::string content, const LabelledDataConfig& config, Labels labels, LabelledTable& table) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (is_gzip(content)) content = unpack_gzip(content, largest_table, table.path.string());
  std::string_view text = content;
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  TableBuilder builder(table, config, labels);
  const auto format = table_format(table.path, config.format);
  if (format == TableFormat::jsonl) {
    add_json_lines(text, config, table.path.string(), builder);
  } else {
    add_delimited_rows(text, config, format == TableFormat::csv ? for_each_csv_row : for_each_tsv_row, table, builder);
  }
}

}  // namespace

LabelledTable read_labelled_table(const std::filesystem::path& path, const LabelledDataConfig& config) {
  auto content = read_file(path, largest_table, ExitCode::data);
  LabelledTable table{.path = path, .sha256 = sha256(content), .rows = {}, .malformed = {}};
  const auto format = table_format(path, config.format);
  read_rows(std::move(content), config, Labels::needed, table);
  require_rows(table, config.malformed_limit);
  if (format != TableFormat::jsonl) refuse_header_as_row(table, config);
  return table;
}

LabelledTable read_text_table(std::string content, const std::filesystem::path& path,
                              const LabelledDataConfig& config) {
  LabelledTable table{.path = path, .sha256 = sha256(content), .rows = {}, .malformed = {}};
  read_rows(std::move(content), config, Labels::none, table);
  return table;
}

}  // namespace metaformer
