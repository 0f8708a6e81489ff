#include "compare/find_runs.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "compare/read_run.h"
#include "compare/results_file.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

bool is_pattern(const std::string& argument) {
  std::error_code ignored;
  return !fs::exists(argument, ignored);
}

std::vector<fs::path> expand(const std::string& argument) {
  if (!is_pattern(argument)) return {argument};
  glob_t matches{};
  const int status = ::glob(argument.c_str(), 0, nullptr, &matches);
  std::vector<fs::path> paths(matches.gl_pathv, matches.gl_pathv + (status == 0 ? matches.gl_pathc : 0));
  ::globfree(&matches);
  if (paths.empty()) throw Error(ExitCode::usage, fmt::format("{}: no such run, results file or pattern", argument));
  return paths;
}

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "config.yaml", ignored);
}

// The runs in a folder that is none itself, by name. A link (runs/latest) names a run that has another name too.
std::vector<fs::path> runs_in(const fs::path& folder) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (!entry.is_symlink() && is_run(entry.path())) runs.push_back(entry.path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

// What a path names: a results file or run itself, or the runs in a folder.
std::vector<fs::path> named_by(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || is_run(path)) return {path};
  return runs_in(path);
}

// Folders of runs and results files; the same path counts once.
std::vector<fs::path> all_paths(const std::vector<std::string>& arguments) {
  std::vector<fs::path> paths;
  std::set<fs::path> seen;
  const auto add = [&](const fs::path& path) {
    std::error_code ignored;
    if (seen.insert(fs::weakly_canonical(path, ignored)).second) paths.push_back(path);
  };
  for (const auto& argument : arguments) {
    bool names_any = false;
    for (const auto& path : expand(argument)) {
      const auto named = named_by(path);
      names_any = names_any || !named.empty();
      std::for_each(named.begin(), named.end(), add);
    }
    if (!names_any)
      throw Error(ExitCode::usage, fmt::format("{}: {}", argument,
                                               is_pattern(argument) ? "no run matches it, nor is one in what matches"
                                                                    : "not a run, and no run is in it"));
  }
  return paths;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

}  // namespace

FoundRuns find_runs(const std::vector<std::string>& arguments) {
  FoundRuns found;
  for (const auto& path : all_paths(arguments)) {
    if (!is_folder(path)) {
      auto [runs, problems] = records_of(read_results(path), path);
      std::move(runs.begin(), runs.end(), std::back_inserter(found.runs));
      std::move(problems.begin(), problems.end(), std::back_inserter(found.problems));
      continue;
    }
    auto reading = read_run(path);
    if (reading.record)
      found.runs.push_back(std::move(*reading.record));
    else
      found.problems.push_back(fmt::format("{}: left out: {}", path.string(), reading.problem));
  }
  return found;
}

std::vector<fs::path> find_run_folders(const std::vector<std::string>& arguments) {
  auto paths = all_paths(arguments);
  std::erase_if(paths, [](const auto& path) { return !is_folder(path); });
  return paths;
}

}  // namespace metaformer
