#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/file_lock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/signals.h"
#include "cli/command_line.h"
#include "report/run_list.h"
#include "run/checkpoint_meta.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

struct ListArguments {
  std::string folder = "runs";
  RunOrder order = RunOrder::age;
  std::optional<double> watch;  // seconds
  bool json = false;
};

// The size of the terminal that standard output is, without its last column, after which some terminals start a new
// row; nothing if it is none.
struct Screen {
  std::size_t columns = 79, rows = 24;
};
std::optional<Screen> screen_of_output() {
  if (isatty(STDOUT_FILENO) == 0) return std::nullopt;
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && size.ws_row > 1;
  return is_known ? Screen{.columns = size.ws_col - std::size_t{1}, .rows = size.ws_row} : Screen();
}

void require_folder(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) fail_usage("{}: no such folder; name one with runs below it", folder);
  if (!fs::is_directory(folder, error)) fail_usage("{}: not a folder; name one with runs below it", folder);
}

// Replaces the content of the terminal by the lines that fit.
void redraw(std::string_view text, const Screen& screen) {
  std::vector<std::string_view> lines;
  while (!text.empty()) lines.push_back(take_line(text));
  std::string drawn = "\033[H";
  const auto all = lines.size(), most = screen.rows - 1;
  const auto shown = all <= most ? all : most - 1;
  for (std::size_t i = 0; i < shown; ++i) drawn += fmt::format("{}\033[K\n", lines[i]);
  if (shown < all) drawn += fmt::format("and {} more\033[K\n", all - shown);
  print(drawn + "\033[J");
}

// Ends only by a signal, or when the terminal is gone.
void watch_runs(const ListArguments& arguments) {
  if (!screen_of_output()) fail_usage("--watch: standard output is no terminal; leave it out");
  print("\033[H\033[2J");
  for (;;) {
    const auto screen = screen_of_output().value_or(Screen());
    redraw(to_text(list_runs(arguments.folder, arguments.order), screen.columns), screen);
    wait_unless_stopped(*arguments.watch);
  }
}

void show_runs(const ListArguments& arguments) {
  if (arguments.watch && arguments.json) fail_usage("--watch: has no effect with --json; leave one of them out");
  require_folder(arguments.folder);
  if (arguments.watch) return watch_runs(arguments);
  const auto runs = list_runs(arguments.folder, arguments.order);
  if (arguments.json) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& run : runs) list.push_back(to_json(run));
    return print_json(list);
  }
  if (runs.empty()) return log::info("there is no run below {}", arguments.folder);
  const auto screen = screen_of_output();
  print(to_text(runs, screen ? std::optional(screen->columns) : std::nullopt));
}

struct DeleteArguments {
  std::vector<std::string> runs;
  bool checkpoints = false, except_best = false, yes = false, json = false;

  KeptCheckpoints kept() const { return except_best ? KeptCheckpoints::best : KeptCheckpoints::best_and_last; }
};

// What will be deleted of a run.
struct Deletion {
  RunDirectory run;
  ListedRun listed;
  std::vector<fs::path> checkpoints;  // only with --checkpoints

  std::uintmax_t bytes() const {
    if (checkpoints.empty()) return listed.size.bytes;
    std::uintmax_t sum = 0;
    for (const auto& checkpoint : checkpoints) sum += size_of_folder(checkpoint).bytes;
    return sum;
  }
};

// A run by its folder, which is no link. Errors (exit code 2): the argument names no run.
RunDirectory run_to_delete(const std::string& argument) {
  fs::path path = argument;
  while (!path.has_filename() && path.has_relative_path()) path = path.parent_path();  // "runs/a/"
  if (path.filename() == "." || path.filename() == "..")
    fail_usage("{}: ends with {}; name the folder of the run", argument, path.filename().string());
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(path, ignored)))
    fail_usage("{}: is a link to {}; name the folder of the run", argument, fs::read_symlink(path, ignored).string());
  auto run = RunDirectory::open(path, "runs rm");
  // Other programs have a config.yaml, too.
  if (!fs::exists(run.environment_file(), ignored) && !fs::exists(run.log_file(), ignored) &&
      !RunDirectory::is_half_deleted(path))
    fail_usage("{}: not a run: it has neither environment.json nor train.log", argument);
  return run;
}

void require_not_in_use(const RunDirectory& run) {
  if (const auto holder = lock_holder(run.lock_file()))
    fail_usage("{}: is trained by {}; stop it first", run.path().string(), *holder);
}

void require_no_run_within(const RunDirectory& run) {
  for (const auto& inner : runs_below(run.path()))
    if (inner != run.path())
      fail_usage("{}: contains another run, {}; delete or move that one first", run.path().string(), inner.string());
}

Deletion plan_deletion(const std::string& argument, const DeleteArguments& arguments) {
  auto run = run_to_delete(argument);
  require_not_in_use(run);
  std::vector<fs::path> checkpoints;
  std::error_code ignored;
  if (!arguments.checkpoints)
    require_no_run_within(run);
  else if (fs::is_symlink(fs::symlink_status(run.checkpoints(), ignored)))
    fail_usage("{}: is a link, which is not followed; delete the checkpoints where they are",
               run.checkpoints().string());
  else
    checkpoints = spare_checkpoints(run.checkpoints(), arguments.kept());
  auto listed = describe_run(run.path(), run.path().string());
  return {.run = std::move(run), .listed = std::move(listed), .checkpoints = std::move(checkpoints)};
}

// All errors of the arguments come before anything is deleted. A run that is named twice counts once; with
// --checkpoints, a run without spare ones is left out.
std::vector<Deletion> plan_deletions(const DeleteArguments& arguments) {
  std::vector<Deletion> deletions;
  for (const auto& argument : arguments.runs) {
    auto deletion = plan_deletion(argument, arguments);
    std::error_code ignored;
    const auto is_same = [&](const Deletion& other) {
      return fs::equivalent(other.run.path(), deletion.run.path(), ignored);
    };
    if (std::ranges::any_of(deletions, is_same)) continue;
    if (arguments.checkpoints && deletion.checkpoints.empty())
      log::info("{}: has no checkpoint to delete", argument);
    else
      deletions.push_back(std::move(deletion));
  }
  return deletions;
}

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "3 runs, 1.2 GiB"
std::string describe(const std::vector<Deletion>& deletions) {
  std::uintmax_t bytes = 0;
  std::size_t checkpoints = 0;
  for (const auto& deletion : deletions) {
    bytes += deletion.bytes();
    checkpoints += deletion.checkpoints.size();
  }
  auto text = counted(deletions.size(), "run");
  if (checkpoints > 0) text = counted(checkpoints, "checkpoint") + " of " + text;
  return text + ", " + human_bytes(bytes);
}

void preview(const Deletion& deletion) {
  const auto& [run, listed, checkpoints] = deletion;
  std::vector<std::string> names;
  for (const auto& checkpoint : checkpoints) names.push_back(checkpoint.filename().string());
  log::info("{}: {}, {}{}, {}", listed.name, to_string(listed.state), describe_progress(listed),
            names.empty() ? "" : fmt::format(": {}", fmt::join(names, ", ")), human_bytes(deletion.bytes()));
  std::error_code ignored;
  if (names.empty() && fs::is_symlink(fs::symlink_status(run.checkpoints(), ignored)))
    log::warning("{} is a link; what it leads to stays", run.checkpoints().string());
}

bool confirm(const std::string& question) {
  constexpr std::size_t longest_answer = 1 << 10;
  std::fputs(fmt::format("{} [y/N] ", question).c_str(), stderr);
  const auto answer = LineReader(STDIN_FILENO, "standard input", longest_answer).next();
  const auto word = answer ? trim(answer->text) : std::string_view();
  return word == "y" || word == "Y" || word == "yes";
}

void carry_out(const Deletion& deletion, const DeleteArguments& arguments) {
  throw_if_stopped();
  if (!arguments.checkpoints) return delete_run(deletion.run);
  const FileLock lock(deletion.run.lock_file());
  remove_spare_checkpoints(deletion.run.checkpoints(), arguments.kept());
}

nlohmann::ordered_json to_json(const std::vector<Deletion>& deletions) {
  nlohmann::ordered_json json = {{"runs", nlohmann::ordered_json::array()},
                                 {"checkpoints", nlohmann::ordered_json::array()}};
  std::uintmax_t bytes = 0;
  for (const auto& deletion : deletions) {
    bytes += deletion.bytes();
    json["runs"].push_back(deletion.run.path().string());
    for (const auto& checkpoint : deletion.checkpoints) json["checkpoints"].push_back(checkpoint.string());
  }
  json["bytes"] = bytes;
  return json;
}

void delete_runs(const DeleteArguments& arguments) {
  if (arguments.except_best && !arguments.checkpoints) fail_usage("--except-best: has no effect without --checkpoints");
  const auto deletions = plan_deletions(arguments);
  if (!arguments.yes && isatty(STDIN_FILENO) == 0)
    fail_usage("--yes is missing: standard input is no terminal that could confirm the deletion");
  for (const auto& deletion : deletions) preview(deletion);
  const auto what = describe(deletions);  // before it is gone
  const auto json = to_json(deletions);
  if (!deletions.empty() && !arguments.yes && !confirm(fmt::format("Delete {}?", what)))
    return log::info("nothing is deleted");
  for (const auto& deletion : deletions) carry_out(deletion, arguments);
  arguments.json ? print_json(json) : print_lines("deleted {}\n", what);
}

void add_delete_command(CLI::App& runs) {
  auto& command = *runs.add_subcommand("rm", "delete runs, or their checkpoints except the best and the last one");
  auto arguments = std::make_shared<DeleteArguments>();
  add_text(command, "runs", arguments->runs, "RUN...", "folders of runs")->required();
  command.add_flag("--checkpoints", arguments->checkpoints,
                   "delete only checkpoints; best and last stay, so that the run can be resumed");
  command.add_flag("--except-best", arguments->except_best, "with --checkpoints: last is deleted, too");
  command.add_flag("--yes,-y", arguments->yes, "do not ask; needed if standard input is no terminal");
  add_json(command, arguments->json, "one line of JSON about what was deleted on stdout");
  command.footer(
      "A run that is being trained is refused, and so is a link. If runs/latest led to a deleted run, it then leads "
      "to\n"
      "the newest run with a checkpoint.\n"
      "Examples:\n"
      "  metaformer runs rm runs/a runs/b\n"
      "  metaformer runs rm --checkpoints --yes runs/sweep/*");
  command.callback([arguments, &runs] {
    if (const auto given = given_flags(runs, {"folder", "--sort", "--watch", "--json"}); !given.empty())
      fail_usage("{}: belongs to runs and has no effect before rm; leave it out", given.front());
    delete_runs(*arguments);
  });
}

}  // namespace

void add_runs_command(CLI::App& app) {
  auto& command = *app.add_subcommand("runs", "list runs with their states, losses, ages and sizes; delete runs");
  command.require_subcommand(0, 1);
  auto arguments = std::make_shared<ListArguments>();
  add_text(command, "folder", arguments->folder, "FOLDER", "folder below which the runs are, at any depth")
      ->capture_default_str();
  add_choice(command, "--sort", arguments->order, "order: the newest change, the name, or the lowest loss first");
  add_watch(command, arguments->watch, "redraw the table on a terminal until Ctrl-C");
  add_json(command, arguments->json, "a list of all runs as one line of JSON on stdout");
  add_delete_command(command);
  command.footer(
      "States: running, finished, stopped, diverged, empty, damaged, half_deleted. docs/run_directory.md describes "
      "them.\n"
      "Examples:\n"
      "  metaformer runs\n"
      "  metaformer runs runs/sweep --sort loss\n"
      "  metaformer runs --watch --every 5\n"
      "  metaformer runs rm runs/a");
  command.callback([arguments, &command] {
    if (command.get_subcommands().empty()) show_runs(*arguments);
  });
}

}  // namespace metaformer
