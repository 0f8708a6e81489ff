#include "report/results_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

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

// Columns that are no measures.
constexpr std::array name_columns = {"key", "config", "overrides", "seed"};
constexpr std::array machine_columns = {"commit", "cpu", "threads"};
constexpr std::array recipe_columns = {"data", "settings"};

// Columns have this order in every file, others come last.
std::vector<std::string> column_order() {
  std::vector<std::string> order(name_columns.begin(), name_columns.end());
  const auto append = [&](Measure::Column column, const auto& then) {
    for (const auto& measure : all_measures())
      if (measure.column == column) order.push_back(measure.id);
    order.insert(order.end(), then.begin(), then.end());
  };
  append(Measure::Column::early, machine_columns);
  append(Measure::Column::late, recipe_columns);
  return order;
}

bool is_description(const std::string& column) {
  const auto in = [&](const auto& list) { return std::find(list.begin(), list.end(), column) != list.end(); };
  return in(name_columns) || in(machine_columns) || in(recipe_columns);
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

ResultsFile parse_results(std::string_view text, const fs::path& path) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
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
    if (std::find(file.columns.begin(), file.columns.end(), needed) == file.columns.end())
      fail(path, 1,
           fmt::format("not a CSV file of results: no column '{}'; they have the columns key, config, overrides, seed, "
                       "..., settings",
                       needed));
  return file;
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

// Columns of other programs may hold anything.
void read_measures(RunRecord& record, const ResultsRow& row, const fs::path& path, std::int64_t line) {
  for (const auto& [column, text] : row) {
    if (is_description(column)) continue;
    const auto value = parse_number(text);
    if (value)
      record.measures[column] = *value;
    else if (is_own_measure(column))
      fail(path, line, fmt::format("{}: expected a number, got {}", column, in_quotes(text)));
  }
}

RunRecord record_of(const ResultsRow& row, const fs::path& path, std::int64_t line) {
  RunRecord record{.key = cell(row, "key"),
                   .config = cell(row, "config"),
                   .overrides = cell(row, "overrides"),
                   .data = cell(row, "data"),
                   .commit = cell(row, "commit"),
                   .cpu = cell(row, "cpu"),
                   .threads = cell(row, "threads"),
                   .cells = row,
                   .source = fmt::format("{}:{}", path.string(), line)};
  const auto seed = parse_number(cell(row, "seed"));
  constexpr double largest_seed = 0x1p53;
  if (!seed || *seed != std::floor(*seed) || std::abs(*seed) > largest_seed)
    fail(path, line, fmt::format("seed: expected a whole number, got {}", in_quotes(cell(row, "seed"))));
  record.seed = static_cast<std::int64_t>(*seed);
  record.settings = parse_settings(cell(row, "settings"), path, line);
  read_measures(record, row, path, line);
  add_derived_measures(record);
  return record;
}

ResultsRow row_of(RunRecord record) {
  if (!record.cells.empty()) return record.cells;
  remove_derived_measures(record);
  ResultsRow row = {{"key", record.key},
                    {"config", record.config},
                    {"overrides", record.overrides},
                    {"seed", fmt::format("{}", record.seed)},
                    {"commit", record.commit},
                    {"cpu", record.cpu},
                    {"threads", record.threads},
                    {"data", record.data},
                    {"settings", json_text(nlohmann::json(record.settings))}};
  for (const auto& [name, value] : record.measures) row[name] = fmt::format("{}", value);
  std::erase_if(row, [](const auto& entry) { return entry.second.empty(); });
  return row;
}

bool is_own(const std::string& column) { return is_own_measure(column) || is_description(column); }

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
    if (std::any_of(rows.begin(), rows.end(), same))
      log::warning("{}: not exported: it is the same config with the same seed as an earlier run", run.source);
    else
      rows.push_back(std::move(row));
  }
  return rows;
}

void put(ResultsFile& file, ResultsRow row) {
  const auto same =
      std::find_if(file.rows.begin(), file.rows.end(), [&](const auto& other) { return is_same_run(other, row); });
  if (same == file.rows.end()) return file.rows.push_back(std::move(row));
  for (const auto& [column, text] : *same)
    if (!is_own(column)) row.try_emplace(column, text);
  *same = std::move(row);
}

// The known columns in their order, then others as they were; known ones without a cell are left out.
std::vector<std::string> columns_of(const ResultsFile& file) {
  auto columns = column_order();
  const auto add = [&](const std::string& name) {
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  };
  std::for_each(file.columns.begin(), file.columns.end(), add);
  for (const auto& row : file.rows)
    for (const auto& [name, text] : row) add(name);
  std::erase_if(columns, [&](const auto& column) {
    return column != "overrides" && is_own(column) &&
           std::none_of(file.rows.begin(), file.rows.end(), [&](const auto& row) { return row.contains(column); });
  });
  return columns;
}

std::string to_csv(const ResultsFile& file) {
  const auto columns = columns_of(file);
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) text += (i == 0 ? "" : ",") + csv_field(cells[i]);
    text += "\n";
  };
  add(columns);
  for (const auto& row : file.rows) {
    std::vector<std::string> cells;
    for (const auto& column : columns) cells.push_back(cell(row, column));
    add(cells);
  }
  return text;
}

// Held on the folder: the file itself is replaced.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) : descriptor_(::open(folder.c_str(), O_RDONLY | O_CLOEXEC)) {
    while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) throw_if_stopped();
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() { ::close(descriptor_); }

 private:
  int descriptor_;
};

constexpr std::uintmax_t largest_results = std::uintmax_t{1} << 30;

}  // namespace

ResultsFile read_results(const fs::path& path) {
  auto text = read_file(path, largest_results, ExitCode::data);
  drop_byte_order_mark(text);  // of spreadsheets
  return parse_results(text, path);
}

ResultsRecords records_of(const ResultsFile& file, const fs::path& path) {
  ResultsRecords records;
  for (std::size_t i = 0; i < file.rows.size(); ++i) {
    auto record = record_of(file.rows[i], path, file.lines[i]);
    const auto bad = std::find_if(record.measures.begin(), record.measures.end(),
                                  [](const auto& measure) { return !std::isfinite(measure.second); });
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
  const FolderLock lock(folder);
  auto file = fs::exists(path, error) ? read_results(path) : ResultsFile{};
  for (const auto& problem : records_of(file, path).problems) log::warning("{}; the row stays", problem);
  for (auto& row : distinct_rows(runs)) put(file, std::move(row));
  const auto place = [&](const ResultsRow& row) { return std::find(order.begin(), order.end(), cell(row, "key")); };
  std::stable_sort(file.rows.begin(), file.rows.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  const auto text = to_csv(file);
  if (!holds(path, text)) write_file_atomically(path, text);
}

}  // namespace metaformer
