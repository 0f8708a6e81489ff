#include "report/results_file.h"

#include <c10/util/ScopeExit.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ranges>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tasks/measures.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

// Columns that are no measures: these, seed and settings.
constexpr std::array<std::pair<const char*, std::string RunRecord::*>, 7> text_columns = {
    {{"key", &RunRecord::key},
     {"config", &RunRecord::config},
     {"overrides", &RunRecord::overrides},
     {"commit", &RunRecord::commit},
     {"cpu", &RunRecord::cpu},
     {"threads", &RunRecord::threads},
     {"data", &RunRecord::data}}};

bool is_description(const std::string& column) {
  return column == "seed" || column == "settings" ||
         std::ranges::any_of(text_columns, [&](const auto& known) { return known.first == column; });
}

bool is_own(const std::string& column) { return is_own_measure(column) || is_description(column); }

// Columns have this order in every file, others come last.
std::vector<std::string> column_order() {
  std::vector<std::string> order = {"key", "config", "overrides", "seed"};
  const auto append = [&](Measure::Column column, const std::vector<std::string>& then) {
    for (const auto& measure : all_measures())
      if (measure.column == column) order.push_back(measure.id);
    order.insert(order.end(), then.begin(), then.end());
  };
  append(Measure::Column::early, {"commit", "cpu", "threads"});
  append(Measure::Column::late, {"data", "settings"});
  return order;
}

std::string cell(const ResultsRow& row, const std::string& column) {
  const auto found = row.find(column);
  return found == row.end() ? "" : found->second;
}

[[noreturn]] void fail(const fs::path& path, std::int64_t line, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("{}:{}: {}", path.string(), line, why));
}

void require_distinct(const std::vector<std::string>& columns, const fs::path& path, std::int64_t line) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (const auto [first, is_new] = places.try_emplace(columns[i], i); !is_new)
      fail(path, line,
           fmt::format("the columns {} and {} have one name, {}; every column needs its own", first->second + 1, i + 1,
                       in_quotes(columns[i])));
}

std::map<std::string, std::string> parse_settings(const std::string& text, const fs::path& path, std::int64_t line) {
  const auto json = parse_json(text);
  std::map<std::string, std::string> settings;
  if (!json.is_object()) fail(path, line, "settings: expected a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) fail(path, line, fmt::format("settings: {}: expected text", in_quotes(key)));
    settings[key] = value.get<std::string>();
  }
  return settings;
}

std::optional<double> parse_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

RunRecord record_of(const ResultsRow& row, const fs::path& path, std::int64_t line) {
  RunRecord record{.cells = row, .source = fmt::format("{}:{}", path.string(), line)};
  for (const auto& [column, member] : text_columns) record.*member = cell(row, column);
  const auto seed = parse_number(cell(row, "seed"));
  constexpr double largest_seed = 0x1p53;
  if (!seed || *seed != std::floor(*seed) || std::abs(*seed) > largest_seed)
    fail(path, line, fmt::format("seed: expected a whole number, got {}", in_quotes(cell(row, "seed"))));
  record.seed = static_cast<std::int64_t>(*seed);
  record.settings = parse_settings(cell(row, "settings"), path, line);
  for (const auto& [column, text] : row) {
    if (is_description(column)) continue;
    if (const auto value = parse_number(text))
      record.measures[column] = *value;
    else if (is_own_measure(column))  // those of other programs may hold anything
      fail(path, line, fmt::format("{}: expected a number, got {}", column, in_quotes(text)));
  }
  add_derived_measures(record);
  return record;
}

ResultsRow row_of(RunRecord record) {
  if (!record.cells.empty()) return record.cells;
  remove_derived_measures(record);
  ResultsRow row = {{"seed", fmt::format("{}", record.seed)}, {"settings", json_text(nlohmann::json(record.settings))}};
  for (const auto& [column, member] : text_columns) row[column] = record.*member;
  for (const auto& [name, value] : record.measures) row[name] = fmt::format("{}", value);
  std::erase_if(row, [](const auto& entry) { return entry.second.empty(); });
  return row;
}

bool is_same_run(const ResultsRow& a, const ResultsRow& b) {
  const auto equal = [&](const char* column) { return cell(a, column) == cell(b, column); };
  if (!cell(a, "key").empty() || !cell(b, "key").empty()) return equal("key");
  return equal("config") && equal("overrides") && equal("seed") && equal("data");
}

// As in a comparison, the first of equal runs counts.
std::vector<ResultsRow> distinct_rows(const std::vector<RunRecord>& runs) {
  std::vector<ResultsRow> rows;
  for (const auto& run : runs) {
    auto row = row_of(run);
    const auto same = [&](const auto& other) { return is_same_run(other, row); };
    if (std::ranges::any_of(rows, same))
      log::warning("{}: not exported: it is the same config with the same seed as an earlier run", run.source);
    else
      rows.push_back(std::move(row));
  }
  return rows;
}

void put(ResultsFile& file, ResultsRow row) {
  const auto same = std::ranges::find_if(file.rows, [&](const auto& other) { return is_same_run(other, row); });
  if (same == file.rows.end()) return file.rows.push_back(std::move(row));
  for (const auto& [column, text] : *same)
    if (!is_own(column)) row.try_emplace(column, text);
  *same = std::move(row);
}

// The known columns in their order, then others as they were; known ones without a cell are left out.
std::vector<std::string> columns_of(const ResultsFile& file) {
  auto columns = column_order();
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(columns, name) == columns.end()) columns.push_back(name);
  };
  std::ranges::for_each(file.columns, add);
  for (const auto& row : file.rows) std::ranges::for_each(row | std::views::keys, add);
  std::erase_if(columns, [&](const auto& column) {
    const auto has_cell = [&](const ResultsRow& row) { return row.contains(column); };
    return column != "overrides" && is_own(column) && std::ranges::none_of(file.rows, has_cell);
  });
  return columns;
}

std::string to_csv(const ResultsFile& file) {
  const auto columns = columns_of(file);
  std::string text;
  const auto add = [&](const auto& cell_of) {
    for (std::size_t i = 0; i < columns.size(); ++i) text += (i == 0 ? "" : ",") + csv_field(cell_of(columns[i]));
    text += "\n";
  };
  add([](const std::string& column) { return column; });
  for (const auto& row : file.rows) add([&](const std::string& column) { return cell(row, column); });
  return text;
}

// Until the result is destroyed; on the folder, since the file itself is replaced.
auto lock_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  auto lock = c10::make_scope_exit([descriptor] { ::close(descriptor); });
  while (descriptor >= 0 && ::flock(descriptor, LOCK_EX) != 0 && errno == EINTR) throw_if_stopped();
  return lock;
}

}  // namespace

ResultsFile read_results(const fs::path& path) {
  constexpr std::uintmax_t largest = std::uintmax_t{1} << 30;
  auto text = read_file(path, largest, ExitCode::data);
  drop_byte_order_mark(text);  // of spreadsheets
  ResultsFile file;
  for_each_csv_row(text, [&](DelimitedRow&& row) {
    if (!row.defect.empty())
      fail(path, row.line, (file.columns.empty() ? "not a CSV file of results: " : "") + row.defect);
    if (file.columns.empty()) {
      file.columns = std::move(row.fields);
      require_distinct(file.columns, path, row.line);
      return;
    }
    if (row.fields.size() != file.columns.size())
      fail(path, row.line, fmt::format("{} cells for {} columns", row.fields.size(), file.columns.size()));
    auto& cells = file.rows.emplace_back();
    for (std::size_t i = 0; i < row.fields.size(); ++i)
      if (!row.fields[i].empty()) cells[file.columns[i]] = std::move(row.fields[i]);
    file.lines.push_back(row.line);
  });
  for (const char* needed : {"config", "seed", "settings"})
    if (std::ranges::find(file.columns, needed) == file.columns.end())
      fail(path, 1,
           fmt::format("not a CSV file of results: no column '{}'; they have the columns key, config, overrides, seed, "
                       "..., settings",
                       needed));
  return file;
}

ResultsRecords records_of(const ResultsFile& file, const fs::path& path) {
  ResultsRecords records;
  for (std::size_t i = 0; i < file.rows.size(); ++i) {
    auto record = record_of(file.rows[i], path, file.lines[i]);
    const auto bad =
        std::ranges::find_if(record.measures, [](const auto& entry) { return !std::isfinite(entry.second); });
    if (bad == record.measures.end())
      records.runs.push_back(std::move(record));
    else
      records.problems.push_back(
          fmt::format("{}: left out: diverged: its {} is not finite", record.source, bad->first));
  }
  return records;
}

void export_results(const fs::path& given, const std::vector<RunRecord>& runs, const std::vector<std::string>& order) {
  const auto path = file_to_write(given);
  if (runs.empty()) throw Error(ExitCode::usage, fmt::format("{}: there is no finished run to export", path.string()));
  const auto folder = fs::absolute(path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  const auto lock = lock_folder(folder);
  auto file = fs::exists(path, error) ? read_results(path) : ResultsFile{};
  for (const auto& problem : records_of(file, path).problems) log::warning("{}; the row stays", problem);
  for (auto& row : distinct_rows(runs)) put(file, std::move(row));
  std::ranges::stable_sort(file.rows, {}, [&](const auto& row) { return std::ranges::find(order, cell(row, "key")); });
  const auto text = to_csv(file);
  if (!holds(path, text)) write_file_atomically(path, text);
}

}  // namespace metaformer
