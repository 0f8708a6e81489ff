#include "run/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <regex>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/signals.h"
#include "base/text.h"
#include "ops/device.h"
#include "run/checkpoint_meta.h"

namespace metaformer {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

namespace {

using Digests = std::map<std::string, std::string>;  // by name, such as "train.sha256"

Digests digests_in(const Json& description, const std::string& prefix = "") {
  Digests digests;
  if (!description.is_object()) return digests;
  for (const auto& [key, value] : description.items()) {
    digests.merge(digests_in(value, prefix + key + "."));
    if (value.is_string() && key.ends_with("sha256")) digests[prefix + key] = value.get<std::string>();
  }
  return digests;
}

Digests digests_of(const RunDirectory& run) { return digests_in(read_environment(run).value("data", Json())); }

std::string digest_or(const Digests& digests, const std::string& name) {
  const auto found = digests.find(name);
  return found == digests.end() ? "missing" : found->second;
}

std::string first_difference(const Digests& before, const Digests& now) {
  auto all = before;
  all.insert(now.begin(), now.end());
  for (const auto& [name, digest] : all)
    if (const auto was = digest_or(before, name), is = digest_or(now, name); was != is)
      return fmt::format("{} is {} and was {}", name, is, was);
  return "";
}

// The name of the digest of a key's file: "validation.target_sha256" for data.validation_target_path. Texts without
// labels have no split "train".
std::string digest_name(std::string_view key, const Digests& digests) {
  key.remove_prefix(std::string_view("data.").size());
  const auto split = key.starts_with("path") || key.starts_with("target") ? "train" : key.substr(0, key.find('_'));
  const auto name = fmt::format("{}.{}sha256", split, key.find("target") == std::string_view::npos ? "" : "target_");
  return split == "train" && !digests.contains(name) ? "sha256" : name;
}

[[noreturn]] void refuse(const RunDirectory& run, const std::vector<std::string>& places, const std::string& why) {
  fail_data("--set {}: not the data that {} was trained on: {}", fmt::join(places, " --set "), run.path().string(),
            why);
}

// The paths of these keys, as "data.path=/b.txt".
std::vector<std::string> places_of(ExperimentConfig config, const std::vector<std::string>& keys) {
  std::vector<std::string> places;
  for (const auto& [key, path] : paths_in(config))
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      places.push_back(fmt::format("{}={}", key, path == nullptr ? "null" : *path));
  return places;
}

// Whether a process that died before it wrote config.yaml may have left this file. A folder of such files is free.
bool is_left_over(const fs::directory_entry& entry) {
  const auto name = entry.path().filename().string();
  std::error_code error;
  return name == "lock" || name == "train.log" || name.ends_with(".tmp") ||
         (name == "checkpoints" && entry.is_directory(error) && fs::is_empty(entry.path(), error));
}

// When a process last began to train the run.
fs::file_time_type started(const fs::path& run) {
  std::error_code ignored;
  return fs::last_write_time(run / "config.yaml", ignored);
}

bool has_checkpoint(const fs::path& run) {
  try {
    return !saved_steps(run / "checkpoints").empty();
  } catch (const Error&) {  // a folder that cannot be read
    return false;
  }
}

std::vector<fs::path> whole_runs_below(const fs::path& folder) {
  auto runs = runs_below(folder);
  std::erase_if(runs, [](const fs::path& run) { return !RunDirectory::is_run(run); });
  return runs;
}

// The runs below the folder of latest_run, and the run that it points at; newest first.
std::vector<fs::path> runs_of_working_folder() {
  std::error_code ignored;
  const fs::path link = latest_run;
  auto runs = whole_runs_below(link.parent_path());
  if (RunDirectory::is_run(link)) runs.insert(runs.begin(), fs::canonical(link, ignored));
  std::ranges::stable_sort(runs, std::ranges::greater(), started);
  return runs;
}

void add_runs_below(const fs::path& folder, std::vector<fs::path>& runs) {
  throw_if_stopped();
  const bool is_run = RunDirectory::is_run(folder);
  if (is_run) runs.push_back(folder);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    if (entry.is_symlink(ignored) || !entry.is_directory(ignored) || (is_run && name == "checkpoints")) continue;
    if (!name.starts_with('.'))
      add_runs_below(entry.path(), runs);
    else if (RunDirectory::is_half_deleted(entry.path()))
      runs.push_back(entry.path());
  }
}

// The links `latest` to the run, in the folders that delete_run names.
std::vector<fs::path> latest_links_to(const fs::path& run) {
  std::vector<fs::path> links;
  const auto add = [&](const fs::path& link) {
    std::error_code ignored;
    if (fs::is_symlink(fs::symlink_status(link, ignored)) && fs::equivalent(link, run, ignored)) links.push_back(link);
  };
  add(latest_run);
  for (auto folder = fs::absolute(run).lexically_normal(); folder.has_relative_path(); folder = folder.parent_path())
    if (folder.filename() == "runs") add(folder / "latest");
  return links;
}

// The run's path for messages: relative if the run lies in the working folder.
std::string shown(const fs::path& run) {
  std::error_code ignored;
  const auto folder = fs::weakly_canonical(run, ignored);
  const auto relative = fs::proximate(folder, ignored);
  return (*relative.begin() == ".." ? folder : relative).string();
}

// The reason why a path is no run: it is a file or a checkpoint of one; "" for other paths. `option` takes a run.
std::string describe_part_of_run(const fs::path& path, std::string_view option) {
  std::error_code ignored;
  auto part = fs::absolute(path).lexically_normal();
  if (!part.has_filename()) part = part.parent_path();  // without the slash behind it
  const auto folder = part.parent_path(), run = folder.parent_path();
  if (!fs::exists(path, ignored)) return "";
  if (RunDirectory::is_run(folder)) return fmt::format("lies in the run {0}: give {1} {0}", shown(folder), option);
  if (folder.filename() != "checkpoints" || !RunDirectory::is_run(run)) return "";
  const auto name = part.filename().string();
  return fmt::format("is a checkpoint of the run {0}: give {1} {0}{2}", shown(run), option,
                     option == "--run"      ? " --checkpoint " + name
                     : option == "--resume" ? fmt::format(", or begin a new run there by --from {}", name)
                                            : "");
}

// The run of latest_run: that of the link if it has a checkpoint, else the first of `runs` that has one. The link
// itself if there are no runs. Errors (exit code 2): none of the runs has a checkpoint.
fs::path find_latest(const std::vector<fs::path>& runs, const char* option) {
  if (has_checkpoint(latest_run)) return latest_run;
  const auto found = std::find_if(runs.begin(), runs.end(), has_checkpoint);
  if (found == runs.end() && !runs.empty())
    fail_usage("{} {}: no run of this folder has a checkpoint; the newest is {}, see its train.log", option, latest_run,
               shown(runs.front()));
  return found == runs.end() ? fs::path(latest_run) : *found;
}

void link_latest_in(const fs::path& folder, const fs::path& run) {
  const auto link = folder / "latest";
  try {
    fs::create_directories(folder);
    const auto target = fs::canonical(run);
    if (has_checkpoint(link) && started(link) > started(target)) return;
    const auto status = fs::symlink_status(link);
    if (fs::exists(status) && !fs::is_symlink(status)) {
      if (fs::canonical(link) != target) log::warning("{} is not a link; it is left alone", link.string());
      return;
    }
    // Relative if link and run lie in one folder, which may then be moved or copied; else absolute.
    const auto relative = target.lexically_relative(fs::canonical(folder));
    const auto climbs = std::count(relative.begin(), relative.end(), fs::path(".."));
    replace_symlink(relative.empty() || climbs > 1 ? target : relative, link);
  } catch (const std::exception& error) {
    log::warning("{} cannot point at this run, so name it with --run: {}", link.string(), error.what());
  }
}

// Points a link `latest`, whose run is gone, to another run.
void relink_latest(const fs::path& link) {
  auto runs = whole_runs_below(link.parent_path());
  std::erase_if(runs, [](const fs::path& run) { return !has_checkpoint(run); });
  std::error_code ignored;
  if (runs.empty())
    fs::remove(link, ignored);
  else
    link_latest_in(link.parent_path(), *std::ranges::max_element(runs, {}, started));
}

// Removes a folder, config.yaml last: until then the folder is recognised as a half-deleted run.
void remove_with_config_last(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename() != "config.yaml") entries.push_back(entry.path());
  for (auto entry = entries.begin(); !error && entry != entries.end(); ++entry) fs::remove_all(*entry, error);
  if (!error) fs::remove_all(folder, error);
}

Json describe(const Session& session) {
  utsname system{};
  uname(&system);
  return {{"version", build_info().version},
          {"commit", build_info().commit},
          {"dirty", build_info().dirty},
          {"torch", TORCH_VERSION},
          {"compiler", build_info().compiler},
          {"device", session.device.str()},
          {"device_name", device_description(session.device)},
          {"threads", at::get_num_threads()},
          {"matrix_products", matrix_products()},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"host", system.nodename},
          {"command", session.command}};
}

}  // namespace

std::optional<std::string> difference_of_data(const RunDirectory& run, const Json& description) {
  const auto before = read_environment(run).value("data", Json());
  if (!before.is_object() || without_paths(before) == without_paths(description)) return std::nullopt;
  const auto digests = digests_in(before);
  return digests.empty() ? "" : first_difference(digests, digests_in(description));
}

void require_moved_files(const RunDirectory& run, const ExperimentConfig& config,
                         const std::vector<std::string>& moved) {
  const auto before = digests_of(run);
  if (moved.empty() || before.empty()) return;
  auto copy = config;
  for (const auto& [key, path] : paths_in(copy)) {
    if (path == nullptr || std::find(moved.begin(), moved.end(), key) == moved.end()) continue;
    const auto name = digest_name(key, before);
    const auto place = with_seed(*path, config.train);
    std::error_code ignored;
    if (!fs::is_regular_file(place, ignored)) continue;
    if (const auto digest = sha256_of_file(place), trained = digest_or(before, name); digest != trained)
      refuse(run, places_of(config, {key}), fmt::format("{} is {} and was {}", name, digest, trained));
  }
}

void require_moved_data(const RunDirectory& run, const ExperimentConfig& config, const std::vector<std::string>& moved,
                        const Json& description) {
  if (moved.empty()) return;
  const auto places = places_of(config, moved);
  const auto before = digests_of(run);
  if (before.empty())
    return log::warning(
        "{}: whether these are the data that {} was trained on cannot be checked: its environment.json has no digests",
        fmt::join(places, ", "), run.path().string());
  if (const auto difference = first_difference(before, digests_in(description)); !difference.empty())
    refuse(run, places, difference);
  log::info("{}: the data that the run was trained on, by their SHA-256", fmt::join(places, ", "));
}

bool RunDirectory::is_free(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return true;
  if (!fs::is_directory(folder, error)) return false;
  const fs::directory_iterator entries(folder, error);
  return !error && std::all_of(begin(entries), end(entries), is_left_over);
}

bool RunDirectory::is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "config.yaml", ignored) && !is_half_deleted(folder);
}

bool RunDirectory::is_half_deleted(const fs::path& folder) {
  std::error_code ignored;
  return !target_of_temporary(folder.filename().string()).empty() &&
         fs::is_regular_file(folder / "config.yaml", ignored);
}

RunDirectory RunDirectory::create(const fs::path& folder) {
  if (!is_free(folder))
    fail_usage("--out {}: already exists; give another folder, or --resume to go on with that run", folder.string());
  std::error_code error;
  fs::create_directories(folder / "checkpoints", error);
  if (fault_strikes("full")) error = std::make_error_code(std::errc::no_space_on_device);
  if (error)
    throw Error(code_of_errno(error.value(), ExitCode::usage),
                fmt::format("--out {}: cannot be made: {}", folder.string(), error.message()));
  return RunDirectory(folder);
}

void RunDirectory::remove_left_overs() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored))
    if (!target_of_temporary(entry.path().filename().string()).empty()) fs::remove(entry.path(), ignored);
}

RunDirectory RunDirectory::open(const fs::path& folder, const char* option) {
  RunDirectory run(folder);
  std::error_code error;
  const auto require = [&](bool holds, const fs::path& path, const std::string& problem) {
    if (error == std::errc::permission_denied)  // it may exist, but this user cannot see it
      fail_usage("{} {}: cannot be read: {}", option, path.string(), error.message());
    if (!holds) fail_usage("{} {}: {}", option, folder.string(), problem);
  };
  if (!fs::exists(folder, error) && fs::is_symlink(fs::symlink_status(folder, error)))
    fail_usage("{} {}: the run that this link points at, {}, is gone; name another run", option, folder.string(),
               fs::read_symlink(folder, error).string());
  const bool is_folder = fs::is_directory(folder, error);
  if (const auto part = is_run(folder) ? "" : describe_part_of_run(folder, option); !part.empty())
    fail_usage("{} {}: {}", option, folder.string(), part);
  require(is_folder, folder, "no such run; metaformer runs lists those that exist");
  const bool has_config = fs::is_regular_file(run.config_file(), error);
  require(has_config, run.config_file(), "not a run: it has no config.yaml");
  return run;
}

RunDirectory RunDirectory::open_trained(const fs::path& folder) {
  if (folder != latest_run) return open(folder);
  const auto runs = runs_of_working_folder();
  const auto run = find_latest(runs, "--run");
  auto opened = open(run);
  const auto newest = runs.empty() || fs::equivalent(runs.front(), run) || has_checkpoint(runs.front())
                          ? std::string()
                          : fmt::format("; {} is newer and has no checkpoint", shown(runs.front()));
  log::info("{} is {}{}", latest_run, shown(run), newest);
  return opened;
}

RunDirectory RunDirectory::open_to_resume(const fs::path& folder) {
  constexpr const char* option = "--resume";
  if (folder != latest_run) return open(folder, option);
  return open(shown(find_latest(runs_of_working_folder(), option)), option);
}

fs::path default_run_folder(const std::string& name) {
  const auto stem = fmt::format("runs/{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time(nullptr)));
  fs::path folder = stem;
  for (int copy = 2; fs::exists(folder); ++copy) folder = fmt::format("{}-{}", stem, copy);
  return folder;
}

std::string name_of_run(const RunDirectory& run) {
  static const std::regex time("-[0-9]{8}-[0-9]{6}(-[0-9]+)?$");
  return std::regex_replace(fs::canonical(run.path()).filename().string(), time, "");
}

void link_latest(const fs::path& run) {
  const auto here = fs::path(latest_run).parent_path();
  link_latest_in(here, run);
  const auto folder = fs::absolute(run).lexically_normal().parent_path();
  std::error_code ignored;
  if (folder.filename() == "runs" && !fs::equivalent(folder, here, ignored)) link_latest_in(folder, run);
}

std::vector<fs::path> runs_below(const fs::path& folder) {
  std::vector<fs::path> runs;
  add_runs_below(folder, runs);
  std::ranges::sort(runs);
  return runs;
}

void delete_run(const RunDirectory& run) {
  const auto& path = run.path();
  const auto links = latest_links_to(path);
  std::error_code error;
  fs::path removed;
  {
    const FileLock lock(run.lock_file());
    removed = rename_to_temporary(path, error);
  }
  if (error) throw Error(ExitCode::failure, fmt::format("{}: cannot be renamed: {}", path.string(), error.message()));
  std::ranges::for_each(links, relink_latest);
  fault_point("remove");
  remove_with_config_last(removed, error);
  if (error)
    throw Error(ExitCode::failure, fmt::format("{}: cannot be removed: {}; the rest of it is now {}", path.string(),
                                               error.message(), removed.string()));
}

Json read_environment(const RunDirectory& run) {
  constexpr std::uintmax_t largest = 1 << 26;
  std::error_code ignored;
  if (!fs::exists(run.environment_file(), ignored)) return Json::object();
  auto environment = parse_json<Json>(read_file(run.environment_file(), largest, ExitCode::failure));
  return environment.is_object() ? environment : Json::object();
}

void write_environment(const RunDirectory& run, const Session& session, const Json& data) {
  constexpr std::size_t most_sessions = 1000;  // of about 15 keys each, well below the reader's limits
  auto environment = describe(session);
  Json entry = {{"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                {"first_step", session.first_step}};
  if (!session.changes.empty()) entry["changes"] = session.changes;
  entry.update(environment);
  const auto before = read_environment(run);
  auto sessions = before.value("sessions", Json());
  if (!sessions.is_array()) sessions = Json::array();
  sessions.push_back(std::move(entry));
  if (sessions.size() > most_sessions) sessions.erase(1);
  if (before.contains("continued_from")) environment["continued_from"] = before["continued_from"];
  environment["data"] = data;
  environment["sessions"] = std::move(sessions);
  write_file_atomically(run.environment_file(), json_text(environment, 2) + "\n");
}

Json without_paths(const Json& description) {
  if (!description.is_object()) return description;
  Json kept;
  for (const auto& [key, value] : description.items())
    if (!key.ends_with("path")) kept[key] = without_paths(value);
  return kept;
}

}  // namespace metaformer
