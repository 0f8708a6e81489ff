#include "config/paths.h"

#include <map>

namespace metaformer {

namespace {

class PathCollector {
 public:
  PathCollector(std::string prefix, std::vector<ConfigPath>& paths) : prefix_(std::move(prefix)), paths_(paths) {}

  template <class T>
  void operator()(const char* name, T& value, const char*) {
    if constexpr (std::is_same_v<T, PathText>) {
      paths_.push_back({prefix_ + name, value.empty() ? nullptr : &value});
    } else if constexpr (std::is_same_v<T, std::optional<PathText>>) {
      paths_.push_back({prefix_ + name, value ? &*value : nullptr});
    } else if constexpr (has_kinds<T>) {
      visit_kind(value, [&](auto& options) { descend(name, options); });
    } else if constexpr (requires(PathCollector & c) { visit(c, value); }) {
      descend(name, value);
    }
  }
  template <class T>
  void operator()(const char*, T&, const Range&, const char*) {}
  template <class V, class Section>
  void section_of(const char* name, const char*, V& variant, const Section& section) {
    visit_section_of(variant, section, [&](auto& value) { descend(name, value); });
  }

 private:
  template <class T>
  void descend(const char* name, T& section) {
    PathCollector inner(prefix_ + name + ".", paths_);
    visit(inner, section);
  }

  std::string prefix_;
  std::vector<ConfigPath>& paths_;
};

bool is_of_data(const std::string& key) {
  constexpr std::string_view section = "data.";
  return key.starts_with(section) && key.find('.', section.size()) == std::string::npos;
}

std::map<std::string, std::string> data_paths_in(ExperimentConfig& config) {
  std::map<std::string, std::string> paths;
  for (const auto& [key, path] : paths_in(config))
    if (is_of_data(key)) paths[key] = path == nullptr ? "" : *path;
  return paths;
}

}  // namespace

std::vector<ConfigPath> paths_in(ExperimentConfig& config) {
  std::vector<ConfigPath> paths;
  PathCollector collector("", paths);
  visit(collector, config);
  return paths;
}

std::vector<std::string> moved_data(ExperimentConfig before, ExperimentConfig now) {
  const auto earlier = data_paths_in(before);
  std::vector<std::string> moved;
  for (const auto& [key, path] : data_paths_in(now))
    if (const auto found = earlier.find(key); found != earlier.end() && found->second != path) moved.push_back(key);
  return moved;
}

bool is_data_path(ExperimentConfig config, const std::string& key) { return data_paths_in(config).contains(key); }

}  // namespace metaformer
