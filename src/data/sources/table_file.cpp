#include "data/sources/table_file.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/gzip.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/sources/file_format.h"

namespace metaformer {

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

}  // namespace metaformer
