#include "data/sources/labelled_table.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/gzip.h"
#include "data/sources/delimited_table.h"
#include "data/sources/file_format.h"
#include "data/sources/json_lines.h"

namespace metaformer {

namespace {

constexpr std::uintmax_t largest_table = std::uintmax_t{16} << 30;

void require_rows(const LabelledTable& table, double malformed_limit) {
  const auto malformed = table.malformed.size(), all = table.all_rows();
  // A quotient of whole numbers rounds as the decimal in the config does, so a share that equals the limit is allowed.
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

void read_rows(std::string content, const DataConfig& config, Labels labels, LabelledTable& table) {
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

LabelledTable read_labelled_table(const std::filesystem::path& path, const DataConfig& config) {
  auto content = read_file(path, largest_table, ExitCode::data);
  LabelledTable table{.path = path, .sha256 = sha256(content), .rows = {}, .malformed = {}};
  const auto format = table_format(path, config.format);
  read_rows(std::move(content), config, Labels::needed, table);
  require_rows(table, config.malformed_limit);
  if (format != TableFormat::jsonl) refuse_header_as_row(table, config);
  return table;
}

LabelledTable read_text_table(std::string content, const std::filesystem::path& path, const DataConfig& config) {
  LabelledTable table{.path = path, .sha256 = sha256(content), .rows = {}, .malformed = {}};
  read_rows(std::move(content), config, Labels::none, table);
  return table;
}

}  // namespace metaformer
