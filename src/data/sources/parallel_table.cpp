#include "data/sources/parallel_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_lines.h"
#include "data/sources/delimited_table.h"

namespace metaformer {

namespace {

void add_pair(std::string&& source, std::string&& target, std::int64_t line, PairTable& table) {
  auto why = defect_of_field("source", source, longest_pair_text);
  if (why.empty()) why = defect_of_field("target", target, longest_pair_text);
  if (!why.empty()) return table.malformed.push_back({line, std::move(why)});
  const auto place = fmt::format("{}:{}", table.path.string(), line);
  table.pairs.push_back({std::move(source), std::move(target), place, place});
}

void add_json_pairs(std::string_view content, const TableColumns& columns, PairTable& table) {
  const auto source = table.path.string();
  check_json_columns(columns, source);
  const std::vector<std::string> names = {columns.first.field, columns.second.field};
  const auto refuse = [&](std::int64_t line, std::string why) { table.malformed.push_back({line, std::move(why)}); };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (auto why = defect_of_text_member(*members[i], names[i]); !why.empty()) return refuse(line, std::move(why));
    add_pair(std::move(members[0]->get_ref<std::string&>()), std::move(members[1]->get_ref<std::string&>()), line,
             table);
  };
  for_each_json_object(content, names, source, use, refuse);
}

}  // namespace

TableColumns columns_of(const ParallelDataConfig& config, std::string_view advice) {
  const ParallelDataConfig usual;
  return {.first = {config.source_field, "data.source_field", "source"},
          .second = {config.target_field, "data.target_field", "target"},
          .are_usual = config.source_field == usual.source_field && config.target_field == usual.target_field,
          .header = config.header,
          .advice = advice,
          .longest_text = longest_pair_text};
}

PairTable read_pair_table(const std::filesystem::path& path, const ParallelDataConfig& config,
                          std::string_view target_key) {
  PairTable table;
  table.path = path;
  const auto content = read_packed_text(path, table.sha256);
  const auto format = table_format(path, config.format);
  const auto advice = fmt::format("; if the targets are the lines of another file, set {}", target_key);
  const auto columns = columns_of(config, advice);
  if (format == TableFormat::jsonl) {
    add_json_pairs(content, columns, table);
  } else {
    for_each_table_row(content, format, columns, table,
                       [&](std::string&& source, std::string&& target, std::int64_t line) {
                         add_pair(std::move(source), std::move(target), line, table);
                       });
  }
  refuse_malformed_table(table, table.all_rows(), config.malformed_limit);
  if (table.pairs.empty()) throw Error(ExitCode::data, path.string() + ": the table has no rows");
  return table;
}

}  // namespace metaformer
