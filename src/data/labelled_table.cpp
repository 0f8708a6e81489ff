#include "data/labelled_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "data/delimited_table.h"
#include "data/digest.h"
#include "data/gzip.h"
#include "data/json_lines.h"

namespace metaformer {

namespace {

constexpr std::uintmax_t largest_table = std::uintmax_t{16} << 30;

bool ends_with_word(const std::string& name, std::string_view ending) {
  return name.size() >= ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), name.rbegin(),
                    [](char expected, char c) { return expected == (c >= 'A' && c <= 'Z' ? c + 32 : c); });
}

TableFormat format_of(const std::filesystem::path& path, TableFormat format) {
  if (format != TableFormat::automatic) return format;
  auto name = path.filename().string();
  if (constexpr std::string_view packed = ".gz"; ends_with_word(name, packed)) name.resize(name.size() - packed.size());
  if (ends_with_word(name, ".csv")) return TableFormat::csv;
  for (const auto* ending : {".jsonl", ".json", ".ndjson"})
    if (ends_with_word(name, ending)) return TableFormat::jsonl;
  return TableFormat::tsv;
}

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

}  // namespace

LabelledTable read_labelled_table(const std::filesystem::path& path, const DataConfig& config) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  auto content = read_file(path, largest_table, ExitCode::data);
  LabelledTable table{.path = path, .sha256 = sha256(content), .rows = {}, .malformed = {}};
  if (is_gzip(content)) content = unpack_gzip(content, largest_table, path.string());
  std::string_view text = content;
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  TableBuilder builder(table, config);
  const auto format = format_of(path, config.format);
  if (format == TableFormat::jsonl) {
    add_json_lines(text, config, path.string(), builder);
  } else {
    add_delimited_rows(text, config, format == TableFormat::csv ? for_each_csv_row : for_each_tsv_row, table, builder);
  }
  require_rows(table, config.malformed_limit);
  if (format != TableFormat::jsonl) refuse_header_as_row(table, config);
  return table;
}

}  // namespace metaformer
