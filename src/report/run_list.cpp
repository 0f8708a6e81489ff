#include "report/run_list.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <ranges>
#include <tuple>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/signals.h"
#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"
#include "report/run_records.h"
#include "run/checkpoint_meta.h"
#include "run/run_directory.h"
#include "run/run_summary.h"
#include "tasks/measures.h"

namespace metaformer {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

namespace {

// The config's part of a run's description.
struct RunGoal {
  std::string measure = "loss";       // key of the main measure
  bool selects = false;               // whether it selects the best checkpoint, which has its highest value
  std::optional<std::int64_t> steps;  // of the config
  std::optional<double> epochs;       // in place of steps
};

std::string main_measure(const TaskConfig& task) {
  if (const auto* classification = std::get_if<ClassificationConfig>(&task))
    return std::string(to_string(classification->selection_metric));
  if (is<SortConfig>(task)) return "exact_match";
  return is<CopyConfig>(task) || recall_rows(task) != nullptr ? "accuracy" : "loss";
}

RunGoal goal_of(const ExperimentConfig& config) {
  RunGoal goal{.measure = main_measure(config.task), .steps = {}, .epochs = {}};
  goal.selects = is<ClassificationConfig>(config.task) && goal.measure != "loss";
  if (is<LinearConfig>(config.model))
    goal.steps = 1;
  else if (config.train.epochs)
    goal.epochs = config.train.epochs;
  else
    goal.steps = config.train.steps;
  return goal;
}

// What metrics.jsonl contains.
struct LoggedProgress {
  std::int64_t step = 0;              // of the last line
  std::optional<double> step_epochs;  // steps of an epoch
  std::optional<ValidationScore> newest, best;
};

std::optional<double> number_in(const Json& line, const std::string& key) {
  const auto value = line.value(key, Json());
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

// The step of a line of the training, which is not that of the test split.
std::optional<std::int64_t> step_of_line(const Json& line) {
  if (!line.is_object() || line.value("split", Json()) == "test") return std::nullopt;
  const auto step = line.value("step", Json());
  return step.is_number_integer() ? std::optional(step.get<std::int64_t>()) : std::nullopt;
}

std::optional<ValidationScore> score_of_line(const Json& line, const RunGoal& goal) {
  const auto step = step_of_line(line);
  if (!step) return std::nullopt;
  const auto split = line.value("split", Json());
  const auto loss = number_in(line, "loss");
  if (!loss || (split != "validation" && split != "validation_estimate")) return std::nullopt;
  return ValidationScore{.step = *step, .loss = *loss, .value = number_in(line, goal.measure)};
}

// By which the best checkpoint is selected.
double error_of(const ValidationScore& score, const RunGoal& goal) {
  return goal.selects ? 1 - score.value.value_or(0) : score.loss;
}

// Parses the lines of evaluations, and from the end on those that give the step and the length of an epoch: other lines
// are many in a long run.
LoggedProgress read_logged_progress(const fs::path& file, const RunGoal& goal) {
  constexpr std::uintmax_t largest = std::uintmax_t{4} << 30;
  LoggedProgress logged;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return logged;
  const auto text = read_file(file, largest, ExitCode::data);
  std::vector<std::string_view> lines;
  for (std::string_view rest = text; !rest.empty();) lines.push_back(take_line(rest));
  for (const auto line : lines) {
    if (line.find("\"validation") == std::string_view::npos) continue;
    const auto score = score_of_line(parse_json<Json>(line), goal);
    if (!score) continue;
    if (!logged.best || error_of(*score, goal) < error_of(*logged.best, goal)) logged.best = score;
    logged.newest = score;
  }
  for (const auto line : lines | std::views::reverse) {
    const auto json = parse_json<Json>(line);
    const auto step = step_of_line(json);
    if (!step) continue;
    if (logged.step == 0) logged.step = *step;
    if (const auto epoch = number_in(json, "epoch"); epoch && *epoch > 0)
      logged.step_epochs = static_cast<double>(*step) / *epoch;
    if (logged.step_epochs || !goal.epochs) break;
  }
  return logged;
}

// The step of the newest checkpoint, or nothing.
std::optional<std::int64_t> newest_checkpoint(const RunDirectory& run) {
  const auto steps = saved_steps(run.checkpoints());
  return steps.empty() ? std::nullopt : std::optional(steps.front());
}

// What a run's files say, as far as they can be read.
struct RunFiles {
  RunGoal goal;
  LoggedProgress logged;
  std::optional<std::int64_t> checkpoint;  // step of the newest one
  std::optional<RunSummary> summary;
  std::optional<std::string> holder;  // of the lock
  std::string log_end;                // last line of train.log, of a run that is neither finished nor running
};

// Whether the summary belongs to the last step, and not to an earlier end of a run that was resumed with more steps.
bool is_finished(const RunFiles& files) {
  const auto& summary = files.summary;
  if (!summary || summary->steps < files.logged.step) return false;
  return summary->stopped_early || summary->steps >= files.goal.steps.value_or(0);
}

// The message of the exception that `read` throws, "" when it throws none.
template <class Read>
std::string problem_of_reading(Read read) {
  try {
    read();
    return "";
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

void add_config(ListedRun& listed, RunFiles& files, const RunDirectory& run) {
  const auto config = load_run_experiment(run.config_file()).config;
  files.goal = goal_of(config);
  listed.task = kind_of(config.task);
  listed.measure = files.goal.measure;
  listed.changed = flattened(config_changes(config));
  listed.settings = flattened(config_to_json(config));
}

void add_summary(RunFiles& files, const RunDirectory& run) {
  files.summary = read_summary(run);
  if (!files.summary && fs::exists(run.summary_file())) fail_data("its summary.json is not a JSON object");
}

// Reads the files one after another, so that a damaged one hides none of the others. Sets ListedRun::problem to the
// first problem.
RunFiles read_files(ListedRun& listed, const RunDirectory& run) {
  RunFiles files;
  const auto attempt = [&](auto read) {
    const auto problem = problem_of_reading(read);
    if (listed.problem.empty()) listed.problem = problem;
  };
  attempt([&] { add_config(listed, files, run); });
  attempt([&] { add_summary(files, run); });
  attempt([&] { files.logged = read_logged_progress(run.metrics_file(), files.goal); });
  attempt([&] { files.checkpoint = newest_checkpoint(run); });
  attempt([&] { files.holder = lock_holder(run.lock_file()); });
  if (!is_finished(files) && !files.holder) attempt([&] { files.log_end = last_log_line(run); });
  return files;
}

RunState state_of(const RunFiles& files, const std::string& problem) {
  if (files.holder) return RunState::running;
  if (!problem.empty()) return RunState::damaged;
  if (says_diverged(files.log_end) || (files.summary && !std::isfinite(files.summary->val_loss)))
    return RunState::diverged;
  if (is_finished(files)) return RunState::finished;
  return files.logged.step > 0 || files.checkpoint ? RunState::stopped : RunState::empty;
}

// The line of a log without its time: "step 3: the loss is not finite".
std::string message_in(const std::string& line) {
  const std::string_view mark = "error: ";
  const auto at = line.find(mark);
  return at == std::string::npos ? line : line.substr(at + mark.size());
}

std::int64_t steps_done(const RunFiles& files, RunState state) {
  if (is_finished(files)) return files.summary->steps;
  // While a run trains, its newest checkpoint may be one that a rollback has left.
  if (state == RunState::running && files.logged.step > 0) return files.logged.step;
  return std::max(files.logged.step, files.checkpoint.value_or(0));
}

std::optional<std::int64_t> steps_in_all(const RunFiles& files) {
  const auto& [goal, logged] = std::tie(files.goal, files.logged);
  if (goal.steps) return goal.steps;
  if (is_finished(files) && !files.summary->stopped_early) return files.summary->steps;
  if (goal.epochs && logged.step_epochs) return std::llround(*goal.epochs * *logged.step_epochs);
  return std::nullopt;
}

std::optional<ValidationScore> newest_score(const RunFiles& files) {
  if (files.logged.newest || !is_finished(files) || !files.summary->validation) return files.logged.newest;
  const auto& validation = *files.summary->validation;
  return ValidationScore{.step = files.summary->steps,
                         .loss = validation.find("loss").value_or(NAN),
                         .value = validation.find(files.goal.measure)};
}

// A summary knows the best checkpoint, but only the value that has selected it.
std::optional<ValidationScore> best_score(const RunFiles& files) {
  const auto& logged = files.logged.best;
  if (!is_finished(files) || !std::isfinite(files.summary->best_val_loss)) return logged;
  ValidationScore best{.step = files.summary->best_step, .loss = files.summary->best_val_loss, .value = {}};
  if (files.goal.measure == "loss")
    best.value = best.loss;
  else if (files.goal.selects)
    best.value = 1 - files.summary->best_val_error;
  else if (logged && logged->step == best.step)
    best.value = logged->value;
  return best;
}

// Keys whose values differ between the runs, with the seed.
void add_differences(std::vector<ListedRun>& runs) {
  std::vector<Settings> changed, settings;
  for (const auto& run : runs) {
    if (run.settings.empty()) continue;
    changed.push_back(run.changed);
    settings.push_back(run.settings);
  }
  const auto keys = differing_keys(changed, settings);
  for (auto& run : runs)
    for (const auto& key : keys)
      if (const auto found = run.settings.find(key); found != run.settings.end()) run.differences.insert(*found);
}

void sort(std::vector<ListedRun>& runs, RunOrder order) {
  const auto age = [](const ListedRun& run) { return -run.size.changed; };
  const auto loss = [](const ListedRun& run) {
    return run.best ? run.best->loss : std::numeric_limits<double>::infinity();
  };
  if (order == RunOrder::age) std::ranges::stable_sort(runs, {}, age);
  if (order == RunOrder::loss) std::ranges::stable_sort(runs, {}, loss);
}

double age_of(const ListedRun& run) { return std::difftime(std::time(nullptr), run.size.changed); }

// "2.3141", "accuracy 88.61%".
std::string value_text(const ListedRun& run, const std::optional<ValidationScore>& score) {
  if (!score || !score->value) return "";
  return run.measure == "loss" ? shown(measure_of("val_loss"), *score->value) : described(run.measure, *score->value);
}

std::string step_text(const ListedRun& run) {
  return run.steps ? fmt::format("{}/{}", run.step, *run.steps) : fmt::format("{}", run.step);
}

std::string remark_on(const ListedRun& run) {
  if (run.state == RunState::damaged || run.state == RunState::half_deleted) return run.problem;
  std::string text;
  for (const auto& [key, value] : run.differences) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

constexpr std::size_t table_width = 8;  // columns
using ListRow = std::array<std::string, table_width>;

ListRow row_of(const ListedRun& run) {
  const auto best = value_text(run, run.best);
  return {escaped(run.name),
          std::string(to_string(run.state)),
          step_text(run),
          value_text(run, run.newest),
          best.empty() ? "" : fmt::format("{} at {}", best, run.best->step),
          run.size.changed == 0 ? "" : human_duration(age_of(run)),
          human_bytes(run.size.bytes),
          escaped(remark_on(run))};
}

// Cuts the names, so that the columns after them and a part of the last one fit.
void fit_names(std::vector<ListRow>& rows, const std::array<std::size_t, table_width>& widths, std::size_t columns) {
  constexpr std::size_t shortest = 24, gap = 2;
  std::size_t others = 0;
  for (std::size_t i = 1; i + 1 < table_width; ++i) others += gap + widths[i];
  const auto room = columns > others ? columns - others : 0;
  const auto last = widths.back() == 0 ? 0 : std::min(widths.back() + gap, room / 2);
  for (auto& row : rows) row.front() = cut_in_middle(row.front(), std::max(shortest, room - last));
}

std::array<std::size_t, table_width> widths_of(const std::vector<ListRow>& rows) {
  std::array<std::size_t, table_width> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < table_width; ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  return widths;
}

Json json_of_score(const ListedRun& run, const std::optional<ValidationScore>& score) {
  if (!score) return nullptr;
  Json json = {{"step", score->step}, {"loss", score->loss}};
  if (run.measure != "loss") json[run.measure] = score->value ? Json(*score->value) : Json();
  return json;
}

}  // namespace

ListedRun describe_run(const fs::path& folder, const std::string& name) {
  ListedRun listed{.name = name, .folder = folder, .steps = {}, .newest = {}, .best = {}};
  listed.size = size_of_folder(folder);
  if (RunDirectory::is_half_deleted(folder)) {
    listed.state = RunState::half_deleted;
    listed.problem = "its deletion was stopped; metaformer runs rm completes it";
    return listed;
  }
  RunFiles files;
  const auto problem = problem_of_reading([&] { files = read_files(listed, RunDirectory::open(folder, "")); });
  if (!problem.empty()) listed.problem = problem;
  listed.state = state_of(files, listed.problem);
  if (listed.state == RunState::diverged)
    listed.problem = says_diverged(files.log_end) ? message_in(files.log_end) : "its validation loss is not finite";
  listed.step = steps_done(files, listed.state);
  listed.steps = steps_in_all(files);
  listed.newest = newest_score(files);
  listed.best = best_score(files);
  return listed;
}

std::vector<ListedRun> list_runs(const fs::path& folder, RunOrder order) {
  std::vector<ListedRun> runs;
  for (const auto& path : runs_below(folder)) {
    throw_if_stopped();
    std::error_code ignored;
    const auto below = path.lexically_relative(folder);
    runs.push_back(
        describe_run(path, (below == "." ? fs::weakly_canonical(path, ignored).filename() : below).string()));
  }
  add_differences(runs);
  sort(runs, order);
  return runs;
}

std::string describe_progress(const ListedRun& run) {
  auto text = fmt::format("step {}", run.step);
  if (run.steps) text += fmt::format(" of {}", *run.steps);
  if (!run.best) return text;
  text += fmt::format(", best loss {}", shown(measure_of("val_loss"), run.best->loss));
  if (run.measure != "loss" && run.best->value) text += ", " + described(run.measure, *run.best->value);
  return text;
}

std::string to_text(const std::vector<ListedRun>& runs, std::optional<std::size_t> columns) {
  std::vector<ListRow> rows;
  for (const auto& run : runs) rows.push_back(row_of(run));
  const bool has_remarks = std::ranges::any_of(rows, [](const ListRow& row) { return !row.back().empty(); });
  rows.insert(rows.begin(),
              ListRow{"run", "state", "step", "validation", "best", "age", "size", has_remarks ? "differences" : ""});
  if (columns) fit_names(rows, widths_of(rows), *columns);
  const auto widths = widths_of(rows);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < table_width; ++i)
      line += row[i] + std::string(widths[i] - display_width(row[i]) + (i + 1 < table_width ? 2 : 0), ' ');
    if (columns) line = first_columns(line, *columns);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

Json to_json(const ListedRun& run) {
  const auto or_null = [](bool known, Json value) { return known ? std::move(value) : Json(); };
  const bool has_files = run.size.changed != 0;
  return {{"name", run.name},
          {"path", run.folder.string()},
          {"state", to_string(run.state)},
          {"problem", or_null(!run.problem.empty(), run.problem)},
          {"task", or_null(!run.task.empty(), run.task)},
          {"step", run.step},
          {"steps", run.steps ? Json(*run.steps) : Json()},
          {"measure", run.measure},
          {"validation", json_of_score(run, run.newest)},
          {"best", json_of_score(run, run.best)},
          {"changed", or_null(has_files, fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(run.size.changed)))},
          {"age_seconds", or_null(has_files, age_of(run))},
          {"bytes", run.size.bytes},
          {"differences", run.differences}};
}

}  // namespace metaformer
