#include "report/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/changes.h"
#include "config/loader.h"
#include "config/writer.h"

namespace metaformer {

namespace {

// The length of what all words start with, up to the last underscore in it.
std::size_t common_start(const std::vector<std::string>& words) {
  auto common = words.front();
  for (const auto& word : words) {
    const auto differ = std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first;
    common.erase(differ, common.end());
  }
  const auto end = common.rfind('_');
  return end == std::string::npos ? 0 : end + 1;
}

// Of a group's name after its config, "KEY=VALUE" words, and a number where the name was not unique.
std::vector<std::string> words_after_config(const ComparedGroup& group) {
  std::istringstream text(group.name.substr(std::min(group.name.size(), group.runs.front().config.size())));
  return {std::istream_iterator<std::string>(text), {}};
}

// "score_std=0.3" for "model.mixer.score_std=0.3".
std::string shortened(std::string word) {
  if (const auto at = word.find('='); at != std::string::npos) word.erase(0, std::min(word.rfind('.', at) + 1, at));
  return word;
}

std::set<std::string> words_of_all(const std::vector<std::vector<std::string>>& groups) {
  std::set<std::string> common(groups.front().begin(), groups.front().end());
  for (const auto& words : groups)
    std::erase_if(common, [&](const auto& word) { return std::find(words.begin(), words.end(), word) == words.end(); });
  return common;
}

}  // namespace

std::string without_ending(const std::string& name) {
  constexpr std::string_view ending = ".yaml";
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

std::vector<std::string> short_names(const std::vector<ComparedGroup>& groups) {
  std::vector<std::string> configs, whole, names;
  std::vector<std::vector<std::string>> words;
  for (const auto& group : groups) {
    configs.push_back(without_ending(group.runs.front().config));
    whole.push_back(group.name);
    words.push_back(words_after_config(group));
  }
  const auto common = words_of_all(words);
  const auto different = std::set(configs.begin(), configs.end()).size();
  const bool is_one_config = different == 1, has_own_config = different == groups.size();
  const auto start = common_start(configs);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto name = is_one_config ? "" : configs[i].substr(start);
    for (const auto& word : words[i])
      if (!common.contains(word) && (is_one_config || !has_own_config))
        name += (name.empty() ? "" : " ") + shortened(word);
    names.push_back(name.empty() ? configs[i] : name);
  }
  const bool unique = std::set(names.begin(), names.end()).size() == names.size();
  return unique ? names : whole;
}

namespace {

std::map<std::string, std::string> without_seed(std::map<std::string, std::string> settings) {
  settings.erase("train.seed");
  return settings;
}

}  // namespace

std::map<std::string, std::string> changed_settings(const ExperimentConfig& config) {
  return without_seed(flattened(config_changes(config)));
}

std::map<std::string, std::string> all_settings(const std::map<std::string, std::string>& changed) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : changed) overrides.push_back(key + "=" + value);
  try {
    return without_seed(flattened(config_to_json(default_experiment(overrides).config)));
  } catch (const Error&) {
    return changed;  // of another version
  }
}

namespace {

using Settings = std::map<std::string, std::string>;

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

// Every key of each group's config.
std::vector<Settings> resolve(const std::vector<ComparedGroup>& groups) {
  std::vector<Settings> resolved;
  for (const auto& group : groups) resolved.push_back(all_settings(group.runs.front().settings));
  return resolved;
}

// The keys that say what is learned from which texts, however they are tokenized.
Settings data_settings(const RunRecord& run) {
  auto settings = run.settings;
  std::erase_if(settings, [](const auto& entry) {
    const auto& key = entry.first;
    const bool is_data = key.starts_with("data.") && !key.starts_with("data.tokenizer");
    return !is_data && key != "task.kind" && key != "task.length" && key != "task.digits";
  });
  return settings;
}

bool has_other_data(const RunRecord& run, const RunRecord& first) {
  if (!run.data.empty() && !first.data.empty()) return run.data != first.data;
  return data_settings(run) != data_settings(first);
}

// A sorter's lists are made from its config.
bool has_recorded_data(const RunRecord& run) {
  const auto task = run.settings.find("task.kind");
  return !run.data.empty() || (task != run.settings.end() && task->second == "sort");
}

// The places of the first run, and of the first whose data are recorded, among runs that are kept.
struct FirstRuns {
  std::optional<std::size_t> any, recorded;
};

// Leaves out runs of other data than the first run, or with a `by` than the first run with an equal value of that key.
std::vector<RunRecord> with_equal_data(std::vector<RunRecord> runs, const std::string& by,
                                       std::vector<std::string>& notes) {
  std::map<std::string, FirstRuns> sets;  // by the value of `by`
  std::vector<RunRecord> kept;
  for (auto& run : runs) {
    auto& first = sets[by.empty() ? "" : all_settings(run.settings)[by]];
    const auto differs = [&](const auto& place) { return place && has_other_data(run, kept[*place]); };
    if (const auto other = differs(first.any) ? first.any : first.recorded; differs(other)) {
      notes.push_back(fmt::format("{}: left out: it has other data than {} (environment.json describes them)",
                                  run.source, kept[*other].source));
      continue;
    }
    if (!first.any) first.any = kept.size();
    if (!first.recorded && !run.data.empty()) first.recorded = kept.size();
    kept.push_back(std::move(run));
  }
  const auto unknown = std::count_if(kept.begin(), kept.end(), std::not_fn(has_recorded_data));
  if (unknown > 0 && kept.size() > 1)
    notes.push_back(
        fmt::format("what data {} of {} runs had is not recorded: only their configs' data keys were compared", unknown,
                    kept.size()));
  return kept;
}

bool is_named(const ComparedGroup& group, const std::string& name) {
  return group.name == name || without_ending(group.name) == without_ending(name) ||
         std::any_of(group.runs.begin(), group.runs.end(), [&](const auto& run) { return run.source == name; });
}

// With other overrides, or "metric" for "shakespeare_metric.yaml".
bool has_config(const ComparedGroup& group, const std::string& name) {
  const auto config = without_ending(group.runs.front().config);
  return config == without_ending(name) || config.ends_with("_" + name);
}

// The groups that a name may mean: those of that name, short name or number, or with that run; else those of that
// config.
std::vector<std::size_t> groups_named(const std::vector<ComparedGroup>& groups, const std::string& name) {
  const auto names = short_names(groups);
  std::vector<std::size_t> exact, of_config;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (is_named(groups[i], name) || names[i] == name || fmt::format("{}", i + 1) == name) exact.push_back(i);
    if (has_config(groups[i], name)) of_config.push_back(i);
  }
  return exact.empty() ? of_config : exact;
}

std::string numbered_names(const std::vector<ComparedGroup>& groups, const std::vector<std::size_t>& which) {
  const auto names = short_names(groups);
  std::vector<std::string> listed;
  for (const auto i : which) listed.push_back(fmt::format("{} '{}'", i + 1, names[i]));
  return fmt::format("{}", fmt::join(listed, ", "));
}

[[noreturn]] void fail_no_reference(const std::vector<ComparedGroup>& groups, const std::string& name) {
  std::vector<std::size_t> all(groups.size());
  std::iota(all.begin(), all.end(), 0);
  throw Error(ExitCode::usage,
              fmt::format("--reference {}: no such group; there are {}", in_quotes(name), numbered_names(groups, all)));
}

// The group of one set that --reference names; nothing when none of the set has that name.
std::optional<std::size_t> find_reference(const std::vector<ComparedGroup>& groups, const std::vector<std::size_t>& set,
                                          const std::vector<std::size_t>& named, const std::string& name) {
  if (name.empty()) return set.front();
  std::vector<std::size_t> found;
  std::set_intersection(set.begin(), set.end(), named.begin(), named.end(), std::back_inserter(found));
  if (found.size() > 1)
    throw Error(ExitCode::usage, fmt::format("--reference {} names {} groups; give the number or the name of one: {}",
                                             in_quotes(name), found.size(), numbered_names(groups, found)));
  return found.empty() ? std::nullopt : std::optional(found.front());
}

[[noreturn]] void fail_no_key(const std::vector<Settings>& resolved, const std::string& key) {
  if (key == "train.seed")
    throw Error(ExitCode::usage,
                "--by 'train.seed': the runs of a group differ in it; expected a key in which groups differ");
  std::set<std::string> keys;
  for (const auto& settings : resolved)
    for (const auto& [name, value] : settings) keys.insert(name);
  const auto kind = key + ".kind";
  throw Error(ExitCode::usage, fmt::format("--by {}: no run has such a key{}", in_quotes(key),
                                           keys.contains(kind) ? fmt::format("; did you mean {}?", in_quotes(kind))
                                                               : did_you_mean(key, {keys.begin(), keys.end()})));
}

}  // namespace

std::vector<ComparedGroup> group_runs(std::vector<RunRecord> given, const std::string& by,
                                      std::vector<std::string>& notes) {
  std::vector<ComparedGroup> groups;
  auto runs = with_equal_data(std::move(given), by, notes);
  for (auto& run : runs) {
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& other) { return other.runs.front().settings == run.settings; });
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
  if (!has_key) fail_no_key(resolved, options.by);
  bool has_reference = false;
  const auto named = groups_named(groups, options.reference);
  for (const auto& [value, members] : sets) {
    const auto reference = find_reference(groups, members, named, options.reference);
    has_reference = has_reference || reference;
    for (const auto i : members) groups[i].reference = reference.value_or(i);
  }
  if (!has_reference) fail_no_reference(groups, options.reference);
}

}  // namespace metaformer
