#include "config/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/platform.h"
#include "base/text.h"
#include "config/changes.h"
#include "config/check.h"
#include "config/paths.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t longest_base_chain = 32;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_bare_name(const std::string& name) { return !name.empty() && name.find('/') == std::string::npos; }

// `name`, or `name.yaml` when that is what exists.
fs::path with_ending(const fs::path& path) {
  if (is_file(path)) return path;
  const fs::path longer = path.string() + ".yaml";
  return is_file(longer) ? longer : fs::path{};
}

std::vector<std::string> config_names(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".yaml") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void fail_not_found(const std::string& prefix, const std::string& name) {
  std::error_code error;
  if (fs::is_directory(name, error))
    throw Error(
        ExitCode::usage,
        fmt::format("{}{}: a folder, and a config is a YAML file; to train on the texts in it: metaformer train "
                    "--config shakespeare_metric.yaml --set data.path={}",
                    prefix, name, name));
  if (!is_bare_name(name)) {
    const auto folder = fs::path(name).parent_path();
    std::error_code ignored;
    if (fs::exists(name, ignored))
      throw Error(ExitCode::usage, fmt::format("{}{}: not a file; a config is a YAML file", prefix, name));
    throw Error(ExitCode::usage, fmt::format("{}{}: no such config file{}", prefix, name,
                                             did_you_mean(fs::path(name).filename().string(), config_names({folder}))));
  }
  auto folders = config_folders();
  folders.insert(folders.begin(), fs::path("."));
  std::vector<std::string> shown;
  for (const auto& folder : folders) shown.push_back(folder == "." ? "in the working folder" : "in " + folder.string());
  const auto last = std::exchange(shown.back(), "");
  shown.pop_back();
  throw Error(ExitCode::usage, fmt::format("{}{}: no such config; looked {} and {}{}", prefix, name,
                                           fmt::join(shown, ", "), last, did_you_mean(name, config_names(folders))));
}

// Whether a file is YAML with a section of a config.
bool has_section(const fs::path& path) {
  constexpr std::array<std::string_view, 5> sections = {"base", "task", "data", "model", "train"};
  try {
    const auto root = read_yaml_file(path);
    return std::any_of(sections.begin(), sections.end(), [&](auto name) { return root.find(name) != nullptr; });
  } catch (const Error&) {
    return false;
  }
}

bool is_named_as_data(const fs::path& path) {
  constexpr std::array endings = {".txt", ".text", ".csv", ".tsv", ".jsonl", ".ndjson", ".gz"};
  return std::find(endings.begin(), endings.end(), path.extension()) != endings.end() && !has_section(path);
}

// Whether a file is rather a text or a table to train on.
bool looks_like_data(const fs::path& path) {
  constexpr std::uintmax_t largest_config = 1 << 20;
  std::error_code ignored;
  return is_named_as_data(path) || fs::file_size(path, ignored) > largest_config;
}

// What to type for a text, a table or a folder of texts in the place of a config.
std::string data_advice(const fs::path& path) {
  const auto inner = path.extension() == ".gz" ? path.stem() : path;
  const bool is_table = inner.extension() == ".csv" || inner.extension() == ".tsv";
  return fmt::format(
      "this is {}, and a config is a YAML file; to train on it: metaformer train --config {} --set "
      "data.path={}",
      is_table ? "a table" : "a text", is_table ? "text_classifier.yaml" : "shakespeare_metric.yaml", path.string());
}

fs::path look_up(const std::string& name) {
  if (auto found = with_ending(name); !found.empty()) return found;
  if (!is_bare_name(name)) return {};
  for (const auto& folder : config_folders())
    if (auto found = with_ending(folder / name); !found.empty()) return found;
  return {};
}

// Beside the file that names it, then as a name like any other.
fs::path find_base(const ConfigNode& base, const fs::path& from) {
  if (base.kind != ConfigNode::Kind::scalar)
    throw Error(ExitCode::usage, fmt::format("{}: base: expected the name of a config, or a list of names, got {}",
                                             base.location.str(), base.describe()));
  if (base.scalar.empty())
    throw Error(ExitCode::usage, fmt::format("{}: base: is empty; expected the name of a config", base.location.str()));
  const fs::path named = base.scalar;
  if (named.is_relative())
    if (auto found = with_ending(from.parent_path() / named); !found.empty()) return found;
  auto found = look_up(base.scalar);
  if (found.empty()) fail_not_found(base.location.str() + ": base: ", base.scalar);
  return found;
}

// The sources of a file, first to last: those of its bases in their order, then its own. A file that is a base of
// several is applied once, where it comes first: again it would undo what the files between have changed.
class SourceCollector {
 public:
  void collect(const fs::path& path, std::vector<fs::path> chain) {
    const auto canonical = fs::weakly_canonical(path);
    if (std::find(applied_.begin(), applied_.end(), canonical) != applied_.end()) return;
    auto source = read_yaml_file(path);
    chain.push_back(canonical);
    const auto base = std::find_if(source.entries.begin(), source.entries.end(),
                                   [](const auto& entry) { return entry.key.name == "base"; });
    if (base != source.entries.end()) {
      const bool is_list = base->value.kind == ConfigNode::Kind::sequence;
      for (const auto& name : is_list ? base->value.items : std::vector{base->value}) collect_base(name, path, chain);
      source.entries.erase(base);
    }
    applied_.push_back(canonical);
    sources_.push_back(std::move(source));
  }

  std::vector<ConfigNode> take() { return std::move(sources_); }

 private:
  void collect_base(const ConfigNode& name, const fs::path& from, const std::vector<fs::path>& chain) {
    const auto where = name.location.str();
    const auto path = find_base(name, from);
    if (std::find(chain.begin(), chain.end(), fs::weakly_canonical(path)) != chain.end())
      throw Error(ExitCode::usage, fmt::format("{}: base: {} extends itself (a loop)", where, path.string()));
    if (chain.size() >= longest_base_chain)
      throw Error(ExitCode::usage,
                  fmt::format("{}: base: more than {} files extend one another", where, longest_base_chain));
    collect(path, chain);
  }

  std::vector<fs::path> applied_;
  std::vector<ConfigNode> sources_;
};

ConfigNode read_overrides(const std::vector<std::string>& overrides) {
  auto source = tree_from_overrides(overrides);
  if (const auto* base = source.find("base"))
    throw Error(ExitCode::usage, base->location.str() + ": base: belongs into a config file; give that with --config");
  return source;
}

std::string absolute(const std::string& path) {
  const auto whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).string();  // without the slash behind a folder
}

void make_paths_absolute(ExperimentConfig& config) {
  for (const auto& [key, path] : paths_in(config))
    if (path != nullptr) *path = absolute(*path);
}

Experiment resolve(const std::string& name, const std::vector<ConfigNode>& sources) {
  Experiment experiment{.name = name, .config = {}, .provenance = {}};
  for (const auto& source : sources) apply_source(source, experiment.config, experiment.provenance);
  derive_defaults(experiment.config, experiment.provenance);
  check_config(experiment.config, experiment.provenance);
  make_paths_absolute(experiment.config);
  return experiment;
}

}  // namespace

std::vector<fs::path> config_folders() {
  std::vector<fs::path> folders;
  if (const char* listed = std::getenv("METAFORMER_CONFIG_PATH")) {
    std::istringstream stream(listed);
    for (std::string folder; std::getline(stream, folder, ':');)
      if (!folder.empty()) folders.emplace_back(folder);
  }
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  const auto installed = program.parent_path().parent_path() / "share/metaformer/configs";
  folders.push_back(!error && fs::is_directory(installed, error) ? installed : fs::path(build_info().source_configs));
  return folders;
}

fs::path find_config(const std::string& name) {
  auto found = look_up(name);
  if (found.empty()) fail_not_found("", name);
  return found;
}

static Experiment load_config(const fs::path& path, const std::vector<std::string>& overrides) {
  SourceCollector collector;
  collector.collect(path, {});
  auto sources = collector.take();
  sources.push_back(read_overrides(overrides));
  return resolve(path.stem().string(), sources);
}

Experiment load_experiment(const std::string& name, const std::vector<std::string>& overrides) {
  const auto path = find_config(name);
  try {
    return load_config(path, overrides);
  } catch (const Error& error) {
    if (!looks_like_data(path)) throw;
    const auto complaint = is_named_as_data(path) ? path.string() + ":" : std::string(error.what()) + ";";
    throw Error(error.code(), fmt::format("{} {}", complaint, data_advice(path)));
  }
}

Experiment default_experiment(const std::vector<std::string>& overrides) {
  return resolve("default", {read_overrides(overrides)});
}

Experiment load_run_experiment(const fs::path& file, const std::vector<std::string>& overrides) {
  return resolve(file.stem().string(), {read_yaml_file(file), read_overrides(overrides)});
}

}  // namespace metaformer
