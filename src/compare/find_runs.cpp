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

std::vector<fs::path> expand(const std::string& argument) {
  std::error_code ignored;
  if (fs::exists(argument, ignored)) return {argument};
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

// Folders of runs and results files; the same path counts once.
std::vector<fs::path> all_paths(const std::vector<std::string>& arguments) {
  std::vector<fs::path> paths;
  std::set<fs::path> seen;
  const auto add = [&](const fs::path& path) {
    std::error_code ignored;
    if (seen.insert(fs::weakly_canonical(path, ignored)).second) paths.push_back(path);
  };
  for (const auto& argument : arguments)
    for (const auto& path : expand(argument)) {
      std::error_code ignored;
      if (!fs::is_directory(path, ignored) || is_run(path)) {
        add(path);
        continue;
      }
      const auto inside = runs_in(path);
      if (inside.empty())
        throw Error(ExitCode::usage, fmt::format("{}: not a run, and no run is in it", path.string()));
      std::for_each(inside.begin(), inside.end(), add);
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
      auto records = records_of(read_results(path), path);
      std::move(records.begin(), records.end(), std::back_inserter(found.runs));
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
