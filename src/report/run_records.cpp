#include "report/run_records.h"

#include <c10/util/ScopeExit.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <set>
#include <sstream>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/loader.h"
#include "config/writer.h"
#include "run/run_summary.h"
#include "tasks/measures.h"

namespace metaformer {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

namespace {

// Columns that are not measures: these, seed and settings.
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

[[noreturn]] void fail(const fs::path& path, std::int64_t line, const std::string& why) {
  fail_data("{}:{}: {}", path.string(), line, why);
}

void require_distinct(const std::vector<std::string>& columns, const fs::path& path, std::int64_t line) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (const auto [first, is_new] = places.try_emplace(columns[i], i); !is_new)
      fail(path, line,
           fmt::format("the columns {} and {} have one name, {}; every column needs its own", first->second + 1, i + 1,
                       in_quotes(columns[i])));
}

Settings parse_settings(const std::string& text, const fs::path& path, std::int64_t line) {
  const auto json = parse_json(text);
  if (!json.is_object()) fail(path, line, "settings: expected a JSON object of texts");
  for (const auto& [key, value] : json.items())
    if (!value.is_string()) fail(path, line, fmt::format("settings: {}: expected text", in_quotes(key)));
  return json.get<Settings>();
}

RunRecord record_of(const ResultsRow& row, const fs::path& path, std::int64_t line) {
  RunRecord record{.cells = row, .source = fmt::format("{}:{}", path.string(), line)};
  for (const auto& [column, member] : text_columns) record.*member = value_of(row, column);
  const auto seed = as_number<double>(value_of(row, "seed"));
  constexpr double largest_seed = 0x1p53;
  if (!seed || *seed != std::floor(*seed) || std::abs(*seed) > largest_seed)
    fail(path, line, fmt::format("seed: expected a whole number, got {}", in_quotes(value_of(row, "seed"))));
  record.seed = static_cast<std::int64_t>(*seed);
  record.settings = parse_settings(value_of(row, "settings"), path, line);
  for (const auto& [column, text] : row) {
    if (is_description(column)) continue;
    if (const auto value = as_number<double>(text))
      record.measures[column] = *value;
    else if (is_own_measure(column))  // those of other programs may hold anything
      fail(path, line, fmt::format("{}: expected a number, got {}", column, in_quotes(text)));
  }
  add_derived_measures(record);
  return record;
}

ResultsRow row_of(RunRecord record) {
  if (!record.cells.empty()) return record.cells;
  ResultsRow row = {{"seed", fmt::format("{}", record.seed)}, {"settings", json_text(nlohmann::json(record.settings))}};
  for (const auto& [column, member] : text_columns) row[column] = record.*member;
  for (const auto& [name, value] : record.measures)
    if (measure_of(name).origin != Measure::Origin::derived) row[name] = fmt::format("{}", value);
  std::erase_if(row, [](const auto& entry) { return entry.second.empty(); });
  return row;
}

bool is_same_run(const ResultsRow& a, const ResultsRow& b) {
  const auto equal = [&](const char* column) { return value_of(a, column) == value_of(b, column); };
  if (!value_of(a, "key").empty() || !value_of(b, "key").empty()) return equal("key");
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
  for (const auto& row : file.rows) add([&](const std::string& column) { return value_of(row, column); });
  return text;
}

// Holds a lock until the result is destroyed; on the folder, because the file itself is replaced.
auto lock_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  auto lock = c10::make_scope_exit([descriptor] { ::close(descriptor); });
  while (descriptor >= 0 && ::flock(descriptor, LOCK_EX) != 0 && errno == EINTR) throw_if_stopped();
  return lock;
}

// The status of a path; if it cannot be read, that of a missing file.
fs::file_status status_of(const fs::path& path) {
  std::error_code ignored;
  return fs::status(path, ignored);
}

// The path itself, or the matches of a pattern.
std::vector<fs::path> expand(const std::string& argument) {
  if (fs::exists(status_of(argument))) return {argument};
  glob_t matches{};
  const int status = ::glob(argument.c_str(), 0, nullptr, &matches);
  std::vector<fs::path> paths(matches.gl_pathv, matches.gl_pathv + (status == 0 ? matches.gl_pathc : 0));
  ::globfree(&matches);
  if (paths.empty()) fail_usage("{}: no such run, results file or pattern", argument);
  return paths;
}

// The path itself if it is a results file or a run; else the runs in the folder, sorted by name. Links in it are
// skipped: they are other names of runs (runs/latest).
std::vector<fs::path> named_by(const fs::path& path) {
  if (!fs::is_directory(status_of(path)) || RunDirectory::is_run(path)) return {path};
  std::vector<fs::path> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (!entry.is_symlink() && RunDirectory::is_run(entry.path())) runs.push_back(entry.path());
  std::ranges::sort(runs);
  return runs;
}

// Folders of runs and results files; the same path counts once.
std::vector<fs::path> all_paths(const std::vector<std::string>& arguments) {
  std::vector<fs::path> paths;
  std::set<fs::path> seen;
  for (const auto& argument : arguments) {
    bool names_any = false;
    for (const auto& path : expand(argument))
      for (const auto& named : named_by(path)) {
        names_any = true;
        std::error_code ignored;
        if (seen.insert(fs::weakly_canonical(named, ignored)).second) paths.push_back(named);
      }
    if (!names_any)
      fail_usage("{}: {}", argument,
                 fs::exists(status_of(argument)) ? "not a run, and contains none"
                                                 : "matches no run, and no folder that contains runs");
  }
  return paths;
}

// The keys of runs, in the order of the rows and then of the lists beside the runs.
std::vector<std::string> sweep_order(const FoundRuns& found) {
  std::vector<std::string> order;
  for (const auto& run : found.runs)
    if (run.folder.empty()) order.push_back(run.key);
  std::set<fs::path> parents;
  for (const auto& folder : found.folders) {
    std::error_code ignored;
    const auto list = fs::weakly_canonical(folder, ignored).parent_path() / ".sweep" / "order";
    constexpr std::uintmax_t largest = 1 << 26;
    if (!parents.insert(list).second || !fs::exists(status_of(list))) continue;
    const auto text = read_file(list, largest, ExitCode::data);
    for (std::string_view rest = text; !rest.empty();) order.emplace_back(take_line(rest));
  }
  return order;
}

// The keys of the runs in folders, by folder; "" for a config that cannot be read.
std::map<fs::path, std::string> keys_of_folders(const FoundRuns& found) {
  std::map<fs::path, std::string> keys;
  for (const auto& run : found.runs)
    if (!run.folder.empty()) keys[run.folder] = run.key;
  for (const auto& folder : found.folders) {
    if (keys.contains(folder)) continue;
    try {
      keys[folder] = config_digest(load_run_experiment(RunDirectory::open(folder, "").config_file()).config);
    } catch (const Error&) {
      keys[folder] = "";
    }
  }
  return keys;
}

// The size and the time of a file; for a link its target, too.
std::string state_of_file(const fs::path& path) {
  std::error_code ignored;
  const auto time = fs::last_write_time(path, ignored).time_since_epoch().count();
  if (fs::is_directory(path, ignored)) return fmt::format("{} {}\n", time, fs::read_symlink(path, ignored).string());
  return fmt::format("{} {}\n", time, fs::file_size(path, ignored));
}

constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 32;

void add(RunRecord& record, const std::string& id, double value) {
  if (std::isfinite(value)) record.measures[id] = value;
}

void add_summary(RunRecord& record, const RunSummary& summary) {
  const auto& [validation, test] = std::tie(summary.validation, summary.test);
  const std::map<Measure::Origin, Json> reports = {
      {Measure::Origin::summary, to_json(summary)},
      {Measure::Origin::validation, validation ? json_of(validation->scores) : Json()},
      {Measure::Origin::test, test ? json_of(test->scores) : Json()},
      {Measure::Origin::written, test && test->written ? json_of(test->written->scores) : Json()}};
  for (const auto& measure : all_measures()) {
    const auto report = reports.find(measure.origin);
    if (report == reports.end() || measure.column == Measure::Column::none || !report->second.is_object()) continue;
    const auto value = report->second.value(measure.key(), Json());
    if (value.is_number()) add(record, measure.id, value);
  }
  record.collapse = summary.attention_collapse;
  if (record.collapse) add(record, "collapse_step", static_cast<double>(record.collapse->step));
}

// For a sorter: adds the exact match at the best step, and the first evaluated step from which on all lists were
// sorted.
void add_exact_matches(RunRecord& record, const RunDirectory& run, std::int64_t best_step) {
  std::istringstream lines(read_file(run.metrics_file(), largest_file, ExitCode::data));
  std::optional<double> since;
  for (std::string line; std::getline(lines, line);) {
    const auto json = parse_json<Json>(line);
    if (!json.is_object() || json.value("split", Json()) != "validation") continue;
    const auto match = json.value("exact_match", Json()), step = json.value("step", Json());
    if (!match.is_number() || !step.is_number()) continue;
    if (step == best_step) add(record, "best_exact_match", match.get<double>());
    since = match == 1 ? std::optional(since.value_or(step.get<double>())) : std::nullopt;
  }
  if (since) add(record, "perfect_since", *since);
}

// Adds the losses in evaluations/context-128.json, ..., as `evaluate --context 128 --json` prints them.
void add_longer_contexts(RunRecord& record, const fs::path& folder) {
  const std::string prefix = "context-";
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder / "evaluations", none)) {
    const auto name = entry.path().stem().string();
    if (!name.starts_with(prefix) || entry.path().extension() != ".json") continue;
    const auto report = parse_json<Json>(read_file(entry.path(), largest_file, ExitCode::data));
    const auto loss = report.is_object() ? report.value("loss", Json()) : Json();
    if (loss.is_number()) add(record, "val_loss_" + name.substr(prefix.size()), loss);
  }
}

struct CommandNames {
  std::string config;  // the name of the file; "" if the command has none, as `train --resume RUN`
  std::vector<std::string> overrides;
};

// The config and the overrides in the words of a command.
CommandNames names_in(const Json& command) {
  CommandNames names;
  if (!command.is_array() || !std::ranges::all_of(command, &Json::is_string)) return names;
  const std::vector<std::string> words(command.begin(), command.end());
  const auto name_config = [&](const std::string& path) { names.config = fs::path(path).filename().string(); };
  if (words.size() > 2 && words[1] == "train" && !words[2].starts_with("-")) name_config(words[2]);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto given = [&](const std::string& option) -> std::string {
      if (words[i].starts_with(option + "=")) return words[i].substr(option.size() + 1);
      return words[i] == option && i + 1 < words.size() ? words[i + 1] : "";
    };
    if (const auto config = given("--config"); !config.empty()) name_config(config);
    if (const auto set = given("--set"); !set.empty() && !set.starts_with("train.seed="))
      names.overrides.push_back(set);
  }
  return names;
}

// The commands that trained a run, the last one first.
std::vector<Json> commands_of(const Json& environment) {
  std::vector<Json> commands = {environment.value("command", Json())};
  const auto sessions = environment.value("sessions", Json());
  if (!sessions.is_array()) return commands;
  for (std::size_t i = sessions.size(); i > 1; --i)  // the last session has the command above
    if (sessions[i - 2].is_object()) commands.push_back(sessions[i - 2].value("command", Json()));
  return commands;
}

// The config and the overrides that `train` was given. A command without a config continues with that of an earlier
// command, and its overrides replace those.
void add_names(RunRecord& record, const Json& environment, const fs::path& folder) {
  record.config = fs::absolute(folder).lexically_normal().filename().string();
  std::vector<std::string> overrides;
  const auto is_replaced = [&](const std::string& override) {
    const auto key = override.substr(0, override.find('=') + 1);
    return std::ranges::any_of(overrides, [&](const std::string& later) { return later.starts_with(key); });
  };
  for (const auto& command : commands_of(environment)) {
    auto names = names_in(command);
    std::erase_if(names.overrides, is_replaced);
    overrides.insert(overrides.begin(), names.overrides.begin(), names.overrides.end());
    if (names.config.empty()) continue;
    record.config = names.config;
    break;
  }
  record.overrides = fmt::format("{}", fmt::join(overrides, " "));
}

// The part of environment.json that identifies the data: without paths, tokenizer, and counts that depend on the
// version.
Json identity_of(const Json& description) {
  static const std::set<std::string> identifying = {"sha256",    "rows",        "validation_split",
                                                    "generator", "train_lists", "validation_lists"};
  Json identity;
  for (const auto& [key, value] : description.items()) {
    if (key == "extra") continue;  // data.extra_path is a part of the recipe
    if (value.is_object())
      identity[key] = identity_of(value);
    else if (identifying.contains(key))
      identity[key] = value;
  }
  return identity;
}

// A digest that is the same for the same texts in the same splits.
std::string data_digest(const Json& environment, const RunRecord& record) {
  const auto description = environment.value("data", Json());
  if (!description.is_object()) return "";
  auto text = json_text(identity_of(description));
  for (const char* key : {"data.validation_fraction", "task.digits", "task.length"})  // how the data are split
    if (const auto found = record.settings.find(key); found != record.settings.end())
      text += fmt::format(" {}={}", key, found->second);
  constexpr std::size_t digits = 12;
  return sha256(text).substr(0, digits);
}

void add_environment(RunRecord& record, const Json& environment, const fs::path& folder) {
  add_names(record, environment, folder);
  record.commit = text_of(environment, "commit").substr(0, 12);
  record.cpu = text_of(environment, "device_name");
  record.threads = text_of(environment, "threads");
  record.data = data_digest(environment, record);
}

// Why a run has no summary: the last error in its log, or how far it came.
std::string describe_unfinished(const RunDirectory& run) {
  if (fs::exists(status_of(run.summary_file()))) return "damaged: its summary.json is not a JSON object";
  const auto last = last_log_line(run);
  if (last.empty()) return "unfinished: it has no summary.json";
  if (says_diverged(last)) return "diverged: " + last;
  return fmt::format("unfinished: it has no summary.json; the last line of its log is \"{}\"", last);
}

// Throws Error for a run that has nothing to compare: it is unfinished, it diverged, or its files cannot be read.
RunRecord read_run(const fs::path& folder) {
  const auto run = RunDirectory::open(folder, "");
  const auto summary = read_summary(run);
  if (!summary) fail_data("{}", describe_unfinished(run));
  if (!std::isfinite(summary->val_loss)) fail_data("diverged: its validation loss is not finite");
  const auto config = load_run_experiment(run.config_file()).config;
  RunRecord record{.key = config_digest(config),
                   .seed = config.train.seed,
                   .settings = changed_settings(config),
                   .source = folder.string(),
                   .folder = folder};
  add_summary(record, *summary);
  if (is<ClassificationConfig>(config.task)) add(record, "best_val_error", summary->best_val_error);
  if (record.measures.contains("exact_match")) add_exact_matches(record, run, summary->best_step);
  add_longer_contexts(record, folder);
  add_derived_measures(record);
  add_environment(record, read_environment(run), folder);
  return record;
}

}  // namespace

std::string text_of(const Json& json, const char* key) {
  const auto value = json.value(key, Json());
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : json_text(value);
}

std::string last_log_line(const RunDirectory& run) {
  if (!fs::exists(status_of(run.log_file()))) return "";
  std::istringstream lines(read_file(run.log_file(), largest_file, ExitCode::data));
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

bool says_diverged(std::string_view line) { return line.find(" is not finite") != std::string_view::npos; }

ResultsFile read_results(const fs::path& path) {
  constexpr std::uintmax_t largest = std::uintmax_t{1} << 30;
  auto text = read_file(path, largest, ExitCode::data);
  drop_byte_order_mark(text);  // which spreadsheets write
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
           fmt::format("not a CSV file of results: no column '{}'; it needs config, seed and settings", needed));
  return file;
}

FoundRuns records_of(const ResultsFile& file, const fs::path& path) {
  FoundRuns records;
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
  if (runs.empty()) fail_usage("{}: there is no finished run to export", given.string());
  std::error_code error;
  fs::create_directories(fs::absolute(given).parent_path(), error);
  const auto path = file_to_write(given);
  const auto folder = fs::absolute(path).parent_path();
  const auto lock = lock_folder(folder);
  auto file = fs::exists(path, error) ? read_results(path) : ResultsFile{};
  for (const auto& problem : records_of(file, path).problems) log::warning("{}; the row stays", problem);
  for (auto& row : distinct_rows(runs)) put(file, std::move(row));
  std::ranges::stable_sort(file.rows, {},
                           [&](const auto& row) { return std::ranges::find(order, value_of(row, "key")); });
  const auto text = to_csv(file);
  if (!holds(path, text)) write_file_atomically(path, text);
}

FoundRuns find_runs(const std::vector<std::string>& arguments) {
  FoundRuns found;
  for (const auto& path : all_paths(arguments)) {
    if (!fs::is_directory(status_of(path))) {
      auto rows = records_of(read_results(path), path);
      std::ranges::move(rows.runs, std::back_inserter(found.runs));
      std::ranges::move(rows.problems, std::back_inserter(found.problems));
      continue;
    }
    found.folders.push_back(path);
    try {
      found.runs.push_back(read_run(path));
    } catch (const Error& error) {
      found.unfinished[path] = error.what();
      found.problems.push_back(fmt::format("{}: left out: {}", path.string(), error.what()));
    }
  }
  return found;
}

void sort_by_sweep(FoundRuns& found) {
  const auto order = sweep_order(found);
  if (order.empty()) return;
  const auto keys = keys_of_folders(found);
  const auto place = [&](const std::string& key) { return key.empty() ? order.end() : std::ranges::find(order, key); };
  std::set<std::string> of_folders;
  for (const auto& run : found.runs)
    if (!run.folder.empty()) of_folders.insert(run.key);
  std::erase_if(found.runs, [&](const auto& run) { return run.folder.empty() && of_folders.contains(run.key); });
  std::ranges::stable_sort(found.runs, {}, [&](const auto& run) { return place(run.key); });
  std::ranges::stable_sort(found.folders, {}, [&](const auto& folder) { return place(keys.at(folder)); });
}

std::string state_of_runs(const std::vector<std::string>& arguments) {
  std::string state;
  for (const auto& path : all_paths(arguments)) {
    state += path.string() + "\n";
    if (!fs::is_directory(status_of(path))) {
      state += state_of_file(path);
      continue;
    }
    const auto run = RunDirectory::open(path, "");
    for (const auto& file : {run.config_file(), run.environment_file(), run.metrics_file(), run.log_file(),
                             run.summary_file(), run.predictions_file("validation"), run.predictions_file("test"),
                             run.confusion_file("validation"), run.confusion_file("test"), run.checkpoints() / "best"})
      state += state_of_file(file);
  }
  return state;
}

}  // namespace metaformer
