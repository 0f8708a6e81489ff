#include "compare/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "compare/record_settings.h"

namespace metaformer {

namespace {

using Settings = std::map<std::string, std::string>;

bool belong_together(const RunRecord& a, const RunRecord& b) {
  if (a.knows_settings && b.knows_settings) return a.settings == b.settings;
  return a.knows_settings == b.knows_settings && a.name() == b.name();
}

// Groups of other settings may have the same name: the file has changed in between.
std::string unique_name(const std::string& name, const std::vector<ComparedGroup>& groups) {
  const auto is_taken = [&](const std::string& candidate) {
    return std::any_of(groups.begin(), groups.end(), [&](const auto& group) { return group.name == candidate; });
  };
  auto candidate = name;
  for (int copy = 2; is_taken(candidate); ++copy) candidate = fmt::format("{} ({})", name, copy);
  return candidate;
}

void add_run(ComparedGroup& group, RunRecord run, std::vector<std::string>& notes) {
  const auto same =
      std::find_if(group.runs.begin(), group.runs.end(), [&](const auto& other) { return other.seed == run.seed; });
  if (same == group.runs.end()) {
    group.runs.push_back(std::move(run));
    return;
  }
  notes.push_back(
      fmt::format("{}: left out: {} is the same config with the same seed, {}", run.source, same->source, run.seed));
}

// "model.layers=2 train.steps=100"
Settings parse_overrides(const std::string& overrides) {
  Settings settings;
  std::istringstream words(overrides);
  for (std::string word; words >> word;)
    if (const auto equals = word.find('='); equals != std::string::npos)
      settings[word.substr(0, equals)] = word.substr(equals + 1);
  return settings;
}

// Every key of the groups' configs; of results without settings only the overrides are known.
std::vector<Settings> resolve(const std::vector<ComparedGroup>& groups) {
  std::vector<Settings> resolved;
  for (const auto& group : groups) {
    const auto& run = group.runs.front();
    resolved.push_back(run.knows_settings ? all_settings(run.settings) : parse_overrides(run.overrides));
  }
  return resolved;
}

std::string without_ending(const std::string& name) {
  constexpr std::string_view ending = ".yaml";
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

bool is_named(const ComparedGroup& group, const std::string& name) {
  return group.name == name || without_ending(group.name) == without_ending(name) ||
         std::any_of(group.runs.begin(), group.runs.end(), [&](const auto& run) { return run.source == name; });
}

// The group that --reference names among those of `candidates`; nothing when none has that name.
std::optional<std::size_t> find_reference(const std::vector<ComparedGroup>& groups,
                                          const std::vector<std::size_t>& candidates, const std::string& name) {
  if (name.empty()) return candidates.front();
  for (const auto i : candidates)
    if (is_named(groups[i], name)) return i;
  for (const auto i : candidates) {  // with other overrides, or "metric" for "shakespeare_metric.yaml"
    const auto config = without_ending(groups[i].runs.front().config);
    if (config == without_ending(name) || config.ends_with("_" + name)) return i;
  }
  return std::nullopt;
}

[[noreturn]] void fail_no_reference(const std::vector<ComparedGroup>& groups, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& group : groups) names.push_back(group.name);
  throw Error(ExitCode::usage,
              fmt::format("--reference {}: no such group; there are {}", in_quotes(name), quoted_list(names)));
}

}  // namespace

std::vector<ComparedGroup> group_runs(std::vector<RunRecord> runs, std::vector<std::string>& notes) {
  std::vector<ComparedGroup> groups;
  std::string data, data_source;
  for (auto& run : runs) {
    if (data.empty()) std::tie(data, data_source) = std::tie(run.data, run.source);
    if (!run.data.empty() && run.data != data) {
      notes.push_back(fmt::format("{}: left out: it has other data than {} (environment.json describes them)",
                                  run.source, data_source));
      continue;
    }
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& other) { return belong_together(other.runs.front(), run); });
    if (group != groups.end()) {
      add_run(*group, std::move(run), notes);
      continue;
    }
    groups.push_back({.name = unique_name(run.name(), groups), .reference = groups.size()});
    groups.back().runs.push_back(std::move(run));
  }
  return groups;
}

std::vector<std::string> find_differing_keys(std::vector<ComparedGroup>& groups) {
  std::set<std::string> changed;
  for (const auto& group : groups)
    for (const auto& [key, value] : group.runs.front().settings) changed.insert(key);
  const auto resolved = resolve(groups);
  std::vector<std::string> differing;
  for (const auto& key : changed) {
    std::set<std::string> values;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (!groups[i].runs.front().knows_settings) continue;
      const auto found = resolved[i].find(key);
      values.insert(found == resolved[i].end() ? "" : found->second);
      if (found != resolved[i].end()) groups[i].settings[key] = found->second;
    }
    if (values.size() > 1) differing.push_back(key);
  }
  for (auto& group : groups)
    std::erase_if(group.settings, [&](const auto& entry) {
      return !std::binary_search(differing.begin(), differing.end(), entry.first);
    });
  return differing;
}

void choose_references(std::vector<ComparedGroup>& groups, const ComparisonOptions& options) {
  std::map<std::string, std::vector<std::size_t>> sets;  // by the value of options.by
  const auto resolved = options.by.empty() ? std::vector<Settings>(groups.size()) : resolve(groups);
  bool has_key = options.by.empty();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto found = resolved[i].find(options.by);
    has_key = has_key || found != resolved[i].end();
    sets[found == resolved[i].end() ? "" : found->second].push_back(i);
  }
  if (!has_key) throw Error(ExitCode::usage, fmt::format("--by {}: no run has such a key", in_quotes(options.by)));
  bool has_reference = false;
  for (const auto& [value, members] : sets) {
    const auto reference = find_reference(groups, members, options.reference);
    has_reference = has_reference || reference;
    for (const auto i : members) groups[i].reference = reference.value_or(i);
  }
  if (!has_reference) fail_no_reference(groups, options.reference);
}

}  // namespace metaformer
