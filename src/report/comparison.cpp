#include "report/comparison.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <ranges>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/rows.h"
#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"
#include "run/run_summary.h"

namespace metaformer {

namespace {

template <class Range, class Text>
std::string joined(const Range& range, const char* separator, Text text) {
  return fmt::format("{}", fmt::join(range | std::views::transform(text), separator));
}

Settings without_seed(Settings settings) {
  settings.erase("train.seed");
  return settings;
}

// "score_std=0.3" for "model.mixer.score_std=0.3".
std::string shortened(std::string word) {
  if (const auto at = word.find('='); at != std::string::npos) word.erase(0, std::min(word.rfind('.', at) + 1, at));
  return word;
}

// "a" for "a.yaml".
std::string without_ending(const std::string& name) {
  return name.ends_with(".yaml") ? name.substr(0, name.size() - 5) : name;
}

// Groups with different settings may have the same name, if the config file has changed between the runs.
std::string unique_name(const std::string& name, const std::vector<ComparedGroup>& groups) {
  auto candidate = name;
  for (int copy = 2; std::ranges::find(groups, candidate, &ComparedGroup::name) != groups.end(); ++copy)
    candidate = fmt::format("{} ({})", name, copy);
  return candidate;
}

const RunRecord* run_with_seed(const ComparedGroup& group, std::int64_t seed) {
  const auto found = std::ranges::find(group.runs, seed, &RunRecord::seed);
  return found == group.runs.end() ? nullptr : &*found;
}

// Every key of each group's config.
std::vector<Settings> resolve(const std::vector<ComparedGroup>& groups) {
  std::vector<Settings> resolved;
  for (const auto& group : groups) resolved.push_back(all_settings(group.runs.front().settings));
  return resolved;
}

// The settings that determine the data, without the tokenizer.
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

// Leaves out runs whose data differ from those of the first run or, with `by`, of the first run with the same value of
// that key.
std::vector<RunRecord> with_equal_data(std::vector<RunRecord> runs, const std::string& by,
                                       std::vector<std::string>& notes) {
  // Indices in `kept` of the first run for each value of `by`: of all runs, and of runs whose data are recorded.
  std::map<std::string, std::size_t> firsts, recorded;
  std::vector<RunRecord> kept;
  for (auto& run : runs) {
    const auto value = by.empty() ? "" : value_of(all_settings(run.settings), by);
    const RunRecord* other = nullptr;
    for (const auto* places : {&recorded, &firsts})
      if (const auto place = places->find(value); place != places->end())
        if (has_other_data(run, kept[place->second])) other = &kept[place->second];
    if (other != nullptr) {
      notes.push_back(fmt::format("{}: left out: it has other data than {} (environment.json describes them)",
                                  run.source, other->source));
      continue;
    }
    firsts.try_emplace(value, kept.size());
    if (!run.data.empty()) recorded.try_emplace(value, kept.size());
    kept.push_back(std::move(run));
  }
  const auto unknown = std::ranges::count_if(kept, [](const RunRecord& run) {
    const auto task = make_kind<TaskConfig>(value_of(run.settings, "task.kind"));
    return run.data.empty() && !(task && count_of_numbers(*task));  // number tasks: data follow from the config
  });
  if (unknown > 0 && kept.size() > 1)
    notes.push_back(
        fmt::format("{} of {} runs do not record their data: only the data keys of their configs were compared",
                    unknown, kept.size()));
  return kept;
}

// The groups with this name, short name, number or run; if there are none, those of this config, also "metric" for
// "shakespeare_metric.yaml".
std::vector<std::size_t> groups_named(const std::vector<ComparedGroup>& groups, const std::string& name) {
  const auto names = short_names(groups);
  std::vector<std::size_t> exact, of_config;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& group = groups[i];
    const auto config = without_ending(group.runs.front().config);
    const bool has_run = std::ranges::find(group.runs, name, &RunRecord::source) != group.runs.end();
    if (has_run || without_ending(group.name) == without_ending(name) || names[i] == name ||
        fmt::format("{}", i + 1) == name)
      exact.push_back(i);
    if (config == without_ending(name) || config.ends_with("_" + name)) of_config.push_back(i);
  }
  return exact.empty() ? of_config : exact;
}

std::string numbered_names(const std::vector<ComparedGroup>& groups, const std::vector<std::size_t>& which) {
  const auto names = short_names(groups);
  return joined(which, ", ", [&](std::size_t i) { return fmt::format("{} '{}'", i + 1, names[i]); });
}

// The group of one set that is named as reference, if there is one.
std::optional<std::size_t> find_reference(const std::vector<ComparedGroup>& groups, const std::vector<std::size_t>& set,
                                          const std::set<std::size_t>& named, const std::vector<std::string>& names) {
  if (names.empty()) return set.front();
  std::vector<std::size_t> found;
  std::ranges::set_intersection(set, named, std::back_inserter(found));
  if (found.size() > 1)
    fail_usage("--reference {} names {} groups; give the number or the name of one: {}", quoted_list(names),
               found.size(), numbered_names(groups, found));
  return found.empty() ? std::nullopt : std::optional(found.front());
}

// The groups that match any of the names.
std::set<std::size_t> groups_named(const std::vector<ComparedGroup>& groups, const std::vector<std::string>& names) {
  std::vector<std::size_t> all(groups.size());
  std::iota(all.begin(), all.end(), 0);
  std::set<std::size_t> named;
  for (const auto& name : names) {
    const auto found = groups_named(groups, name);
    if (found.empty())
      fail_usage("--reference {}: no such group; there are {}", in_quotes(name), numbered_names(groups, all));
    named.insert(found.begin(), found.end());
  }
  return named;
}

[[noreturn]] void fail_no_key(const std::vector<Settings>& resolved, const std::string& key) {
  if (key == "train.seed")
    fail_usage("--by 'train.seed': the runs of a group differ in it; expected a key in which groups differ");
  Settings keys;
  for (const auto& settings : resolved) keys.insert(settings.begin(), settings.end());
  const auto names = keys | std::views::keys;
  const auto kind = key + ".kind";
  fail_usage("--by {}: no run has such a key{}", in_quotes(key),
             keys.contains(kind) ? fmt::format("; did you mean {}?", in_quotes(kind))
                                 : did_you_mean(key, {names.begin(), names.end()}));
}

// Groups in the order of their first runs, without measures; each is its own reference.
std::vector<ComparedGroup> group_runs(std::vector<RunRecord> given, const std::string& by,
                                      std::vector<std::string>& notes) {
  std::vector<ComparedGroup> groups;
  for (auto& run : with_equal_data(std::move(given), by, notes)) {
    auto group =
        std::ranges::find_if(groups, [&](const auto& other) { return other.runs.front().settings == run.settings; });
    if (group == groups.end())
      group = groups.insert(group, {.name = unique_name(run.name(), groups), .reference = groups.size()});
    if (const auto* same = run_with_seed(*group, run.seed))
      notes.push_back(fmt::format("{}: left out: {} is the same config with the same seed, {}", run.source,
                                  same->source, run.seed));
    else
      group->runs.push_back(std::move(run));
  }
  return groups;
}

// The config keys that differ between groups. Adds their values to ComparedGroup::settings.
std::vector<std::string> find_differing_keys(std::vector<ComparedGroup>& groups) {
  const auto resolved = resolve(groups);
  std::vector<Settings> changed;
  for (const auto& group : groups) changed.push_back(group.runs.front().settings);
  auto differing = differing_keys(changed, resolved);
  for (const auto& key : differing)
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (const auto found = resolved[i].find(key); found != resolved[i].end()) groups[i].settings.insert(*found);
  return differing;
}

// Sets every group's reference: the group that options.references name, or the first one; with options.by, among the
// groups with the same value of that key.
void choose_references(std::vector<ComparedGroup>& groups, const ComparisonOptions& options) {
  std::map<std::string, std::vector<std::size_t>> sets;  // by the value of options.by
  const auto resolved = options.by.empty() ? std::vector<Settings>(groups.size()) : resolve(groups);
  bool has_key = options.by.empty();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    has_key = has_key || resolved[i].contains(options.by);
    sets[value_of(resolved[i], options.by)].push_back(i);
  }
  if (!has_key) fail_no_key(resolved, options.by);
  const auto named = groups_named(groups, options.references);
  for (const auto& [value, members] : sets) {
    const auto reference = find_reference(groups, members, named, options.references);
    for (const auto i : members) groups[i].reference = reference.value_or(i);
  }
}

// Errors: exit code 2 for a run without predictions, 1 for a damaged file.
SplitPredictions predictions_of(const RunRecord& run) {
  if (run.folder.empty()) fail_usage("{} is a row of a results file, which has no predictions", run.source);
  if (auto predictions = read_predictions(RunDirectory::open(run.folder), Split::test)) return *std::move(predictions);
  fail_usage("{} has no test_predictions.safetensors", run.source);
}

// McNemar's test of two classifiers with the same seed on the same test texts. Errors: exit code 2 if they cannot be
// compared.
McNemarTest compare_predictions(const RunRecord& reference, const RunRecord& run) {
  const auto theirs = predictions_of(reference), ours = predictions_of(run);
  if (!ours.labels_l.equal(theirs.labels_l))
    fail_usage("{} and {} have different test texts", reference.source, run.source);
  // Of equally likely classes, the first one counts.
  const auto right = [](const SplitPredictions& of) { return of.probabilities_lv.argmax(1) == of.labels_l; };
  const auto right_l = right(ours), their_right_l = right(theirs);
  return mcnemar(run.seed, (their_right_l & ~right_l).sum().item<std::int64_t>(),
                 (right_l & ~their_right_l).sum().item<std::int64_t>());
}

std::vector<Measure> choose_measures(const std::vector<ComparedGroup>& groups, const std::vector<std::string>& wanted) {
  std::set<std::string> present;
  for (const auto& group : groups)
    for (const auto& run : group.runs)
      for (const auto& [id, value] : run.measures) present.insert(id);
  std::vector<Measure> measures;
  for (const auto& id : wanted.empty() ? default_measures(present) : wanted) {
    measures.push_back(measure_of(id));
    if (!present.contains(id) && !measures.back().may_be_absent)
      fail_usage("no run has a measure {}{}; there are {}", in_quotes(id),
                 did_you_mean(id, {present.begin(), present.end()}), fmt::join(present, ", "));
  }
  return measures;
}

GroupMeasure values_of(const ComparedGroup& group, const std::string& id) {
  GroupMeasure result;
  std::vector<double> values;
  for (const auto& run : group.runs) {
    const auto found = run.measures.find(id);
    if (found == run.measures.end()) continue;
    values.push_back(result.values[run.seed] = found->second);
  }
  result.summary = summarise(values);
  return result;
}

// `more`: measures whose values are wanted without differences.
void add_measures(Comparison& comparison, std::vector<std::string> more) {
  more.insert(more.end(), cost_measures().begin(), cost_measures().end());
  for (auto& group : comparison.groups) {
    for (const auto& measure : comparison.measures) {
      const auto& values = (group.measures[measure.id] = values_of(group, measure.id)).values;
      if (values.empty() || measure.may_be_absent) continue;
      for (const auto& run : group.runs)
        if (!values.contains(run.seed))
          comparison.notes.push_back(fmt::format("{}: left out of {}, which it does not have", run.source, measure.id));
    }
    for (const auto& id : more)
      if (!group.measures.contains(id)) group.measures[id] = values_of(group, id);
  }
}

// Notes the seeds that only one of the two groups has: they do not count for the difference.
void note_unpaired_seeds(const ComparedGroup& group, const ComparedGroup& reference, std::vector<std::string>& notes) {
  const auto note = [&](const ComparedGroup& own, const ComparedGroup& other, const std::string& text) {
    for (const auto& run : own.runs)
      if (run_with_seed(other, run.seed) == nullptr)
        notes.push_back(fmt::format("{}: left out of {} has no run with seed {}", run.source, text, run.seed));
  };
  note(group, reference, fmt::format("differences: {}", reference.name));
  note(reference, group, fmt::format("the differences of {}, which", group.name));
}

std::optional<PairedDifference> difference(const GroupMeasure& group, const GroupMeasure& reference,
                                           const Measure& measure, std::optional<double> margin) {
  std::vector<double> differences;
  for (const auto& [seed, value] : group.values)
    if (const auto other = reference.values.find(seed); other != reference.values.end())
      differences.push_back(value - other->second);
  if (differences.empty()) return std::nullopt;
  return paired_difference(differences, margin ? std::optional(*margin / measure.scale) : std::nullopt);
}

// Only classifiers have predictions, though other tasks have measures of the test split, too.
bool predicts_classes(const RunRecord& run) { return value_of(run.settings, "task.kind") == "classification"; }

void add_mcnemar(ComparedGroup& group, const ComparedGroup& reference, std::vector<std::string>& notes) {
  for (const auto& run : group.runs) {
    const auto* partner = run_with_seed(reference, run.seed);
    if (!predicts_classes(run) || run.folder.empty() || partner == nullptr) continue;
    try {
      group.mcnemar.push_back(compare_predictions(*partner, run));
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;  // a damaged file
      notes.push_back(fmt::format("{}: no McNemar test with seed {}: {}", group.name, run.seed, error.what()));
    }
  }
}

void add_differences(Comparison& comparison) {
  const bool tests =
      std::ranges::any_of(comparison.measures, [](const auto& measure) { return measure.id.starts_with("test_"); });
  bool has_rows = false;  // of results files, without a folder
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    auto& group = comparison.groups[i];
    if (group.reference == i) continue;
    const auto& reference = comparison.groups[group.reference];
    note_unpaired_seeds(group, reference, comparison.notes);
    for (const auto& measure : comparison.measures) {
      auto& ours = group.measures.at(measure.id);
      ours.difference = difference(ours, reference.measures.at(measure.id), measure, comparison.margin);
    }
    if (tests) add_mcnemar(group, reference, comparison.notes);
    const auto& first = group.runs.front();
    has_rows = has_rows || (predicts_classes(first) && first.folder.empty());
  }
  if (tests && has_rows)
    comparison.notes.emplace_back("results files hold no predictions, so their rows have no McNemar test");
}

// A comparison as text for a terminal, as a table in Markdown, as CSV for other programs.

constexpr int name_width = 30;

// Whether to show a deviation. Whole numbers have none, and sizes (shown in thousands or more) only if it is not 0.
bool varies(const Measure& measure, const GroupMeasure& group) {
  const auto& deviation = group.summary.deviation;
  const bool is_size = measure.scale < 1 && measure.better == Measure::Better::neither;
  return measure.digits > 0 && deviation && (*deviation > 0 || !is_size);
}

// "1.8478 ± 0.0125", "804,096"; "–" without values.
std::string mean_cell(const Measure& measure, const GroupMeasure& group) {
  if (group.values.empty()) return "–";
  const auto mean = shown(measure, group.summary.mean);
  if (!varies(measure, group)) return mean;
  return fmt::format("{} ± {}", mean, shown(measure, *group.summary.deviation));
}

// "+0.0337 (+0.0202 to +0.0472)"; "" for a reference; without an interval only the mean.
std::string difference_cell(const Measure& measure, const GroupMeasure& group) {
  if (!group.difference) return "";
  const auto& difference = *group.difference;
  const auto mean = shown_difference(measure, difference.mean);
  if (!difference.low) return mean;
  return fmt::format("{} ({} to {})", mean, shown_difference(measure, *difference.low),
                     shown_difference(measure, *difference.high));
}

std::string label(const Comparison& comparison, const std::vector<std::string>& names, std::size_t group) {
  const auto mark = comparison.groups[group].reference == group ? "*" : " ";
  return fmt::format("{:<{}}", fmt::format("{}{:>2} {}", mark, group + 1, cut_in_middle(names[group], name_width - 5)),
                     name_width);
}

std::string list_groups(const Comparison& comparison) {
  std::string text;
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& group = comparison.groups[i];
    text += fmt::format("{}{:>2} {}  (seed{} {})\n", group.reference == i ? "*" : " ", i + 1, group.name,
                        group.runs.size() == 1 ? "" : "s",
                        joined(group.runs, ", ", [](const auto& run) { return std::to_string(run.seed); }));
    for (const auto& [key, value] : group.settings) text += fmt::format("      {}: {}\n", key, value);
  }
  return text;
}

std::string verdict(const PairedDifference& difference) {
  std::string text = difference.p ? fmt::format("  p {:.2g}", *difference.p) : "";
  if (difference.equivalent) text += *difference.equivalent ? "  inside the margin" : "  not inside the margin";
  return text;
}

std::string measure_block(const Comparison& comparison, const std::vector<std::string>& names, const Measure& measure) {
  auto text = fmt::format("\n{:<{}} {:<24}difference to * (95% interval; pairs)\n", measure.title, name_width - 1,
                          "mean ± sd (runs)");
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& values = comparison.groups[i].measures.at(measure.id);
    const auto count = values.values.empty() ? "" : fmt::format(" ({})", values.summary.count);
    auto line = fmt::format("{}{:<24}{}", label(comparison, names, i), mean_cell(measure, values) + count,
                            difference_cell(measure, values));
    if (values.difference) line += fmt::format("; {}", values.difference->pairs) + verdict(*values.difference);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string mcnemar_block(const Comparison& comparison, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < comparison.groups.size(); ++i)
    for (const auto& test : comparison.groups[i].mcnemar)
      text += fmt::format("{}{:<8}{:>10}{:>12}   {:<12.3g}{:.3g}\n", label(comparison, names, i), test.seed,
                          test.only_reference, test.only_this, test.p_exact, test.p_chi_square);
  if (text.empty()) return "";
  return fmt::format("\n{:<{}}{:<8}{:>10}{:>12}   {:<12}{}\n{}", "McNemar's test, texts right by", name_width, " seed",
                     "only *", "only this", "p (exact)", "p (chi-square)", text);
}

std::string cost_block(const Comparison& comparison, const std::vector<std::string>& names) {
  auto text = fmt::format("\n{}", std::string(name_width, ' '));
  std::vector<Measure> costs;
  for (const auto& id : cost_measures()) costs.push_back(measure_of(id));
  const auto width = [](const Measure& measure) { return measure.title.size() + 2; };
  for (const auto& cost : costs) text += fmt::format("{:>{}}", cost.title, width(cost));
  text += "\n";
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    text += label(comparison, names, i);
    for (const auto& cost : costs) {
      const auto& values = comparison.groups[i].measures.at(cost.id);
      text += fmt::format("{:>{}}", values.values.empty() ? "-" : shown(cost, values.summary.mean), width(cost));
    }
    text += "\n";
  }
  return text;
}

struct Column {
  std::string measure, part;  // "val_loss:difference"
};

bool is_of_groups(const std::string& name) { return name == "mcnemar" || name == "settings"; }

Column parse_column(const std::string& text) {
  static const std::vector<std::string> parts = {"difference", "equivalent", "worst", "values"};
  const auto colon = text.find(':');
  Column column{text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1)};
  if (!column.part.empty() && std::ranges::find(parts, column.part) == parts.end())
    fail_usage("--columns {}: no such part; expected {}", in_quotes(text), join_alternatives(parts));
  return column;
}

std::vector<Column> default_columns(const Comparison& comparison) {
  std::vector<Column> columns;
  for (const auto& measure : comparison.measures) {
    columns.push_back({measure.id, ""});
    columns.push_back({measure.id, "difference"});
    if (comparison.margin) columns.push_back({measure.id, "equivalent"});
  }
  if (std::ranges::any_of(comparison.groups, [](const auto& group) { return !group.mcnemar.empty(); }))
    columns.push_back({"mcnemar", ""});
  for (const char* cost : {"train_seconds", "parameters", "mixer_parameters"}) columns.push_back({cost, ""});
  return columns;
}

// The reference of the differences, for the head of a table.
std::string describe_reference(const Comparison& comparison) {
  if (!comparison.by.empty()) return "at equal " + comparison.by.substr(comparison.by.rfind('.') + 1);
  const auto first = comparison.groups.front().reference;
  return "to " + (first == 0 ? "the first row" : comparison.groups[first].name);
}

std::string title_of(const Column& column, const Comparison& comparison) {
  if (column.measure == "mcnemar") return "McNemar's p by seed";
  if (column.measure == "settings") return "what differs";
  const auto measure = measure_of(column.measure);
  if (column.part == "difference") return fmt::format("difference {} (95% interval)", describe_reference(comparison));
  if (column.part == "equivalent") return fmt::format("inside ±{}", comparison.margin.value_or(0));
  if (column.part == "worst") return "worst";
  const bool has_deviations = std::ranges::any_of(comparison.groups, [&](const ComparedGroup& group) {
    const auto found = group.measures.find(measure.id);
    return found != group.measures.end() && varies(measure, found->second);
  });
  return column.part == "values" || !has_deviations ? measure.title : measure.title + ", mean ± sd";
}

std::string worst_cell(const Measure& measure, const GroupMeasure& group) {
  if (group.values.empty()) return "–";
  const auto [low, high] = std::ranges::minmax(group.values | std::views::values);
  return shown(measure, measure.better == Measure::Better::lower ? high : low);
}

// Values in the order of the runs; "never" if a measure that may be absent is missing.
std::string values_cell(const Measure& measure, const ComparedGroup& group) {
  return joined(group.runs, ", ", [&](const RunRecord& run) -> std::string {
    const auto found = run.measures.find(measure.id);
    if (found == run.measures.end()) return measure.may_be_absent ? "never" : "–";
    return fmt::format("{:.{}f}", found->second * measure.scale, measure.digits);
  });
}

std::string equivalent_cell(const GroupMeasure& group) {
  const auto inside = group.difference ? group.difference->equivalent : std::nullopt;
  return inside ? *inside ? "yes" : "no" : "";
}

std::string cell_of(const Column& column, const ComparedGroup& group) {
  if (column.measure == "mcnemar")
    return joined(group.mcnemar, ", ", [](const auto& test) { return fmt::format("{:.2g}", test.p_exact); });
  if (column.measure == "settings")
    return joined(group.settings, ", ",
                  [](const auto& setting) { return fmt::format("`{}: {}`", setting.first, setting.second); });
  const auto measure = measure_of(column.measure);
  const auto found = group.measures.find(column.measure);
  const auto values = found == group.measures.end() ? GroupMeasure{} : found->second;
  if (column.part == "difference") return difference_cell(measure, values);
  if (column.part == "equivalent") return equivalent_cell(values);
  if (column.part == "worst") return worst_cell(measure, values);
  if (column.part == "values") return values_cell(measure, group);
  return mean_cell(measure, values);
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (auto cell : cells) {
    cell = replaced(cell, "|", "\\|");
    std::ranges::replace_if(
        cell, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    row += " " + cell + " |";
  }
  return row + "\n";
}

}  // namespace

std::string value_of(const Settings& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() ? "" : found->second;
}

void add_derived_measures(RunRecord& record) {
  auto& measures = record.measures;
  const auto smoothing = value_of(record.settings, "task.label_smoothing");
  if ((smoothing.empty() || smoothing == "0") && measures.contains("val_loss") && measures.contains("train_loss"))
    measures["loss_gap"] = measures["val_loss"] - measures["train_loss"];
  if (measures.contains("best_val_error") && value_of(record.settings, "task.selection_metric") != "loss")
    measures["validation_score"] = 1 - measures["best_val_error"];
}

Settings changed_settings(const ExperimentConfig& config) { return without_seed(flattened(config_changes(config))); }

Settings all_settings(const Settings& changed) try {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : changed) overrides.push_back(key + "=" + value);
  return without_seed(flattened(config_to_json(default_experiment(overrides).config)));
} catch (const Error&) {
  return changed;  // settings of another version
}

std::vector<std::string> differing_keys(const std::vector<Settings>& changed, const std::vector<Settings>& resolved) {
  std::set<std::string> keys;
  for (const auto& settings : changed)
    for (const auto& [key, value] : settings) keys.insert(key);
  std::erase_if(keys, [&](const std::string& key) {
    const auto is_first = [&](const Settings& settings) {
      return value_of(settings, key) == value_of(resolved[0], key);
    };
    return std::ranges::all_of(resolved, is_first);
  });
  return {keys.begin(), keys.end()};
}

std::vector<std::string> short_names(const std::vector<ComparedGroup>& groups) {
  std::vector<std::string> configs, whole, names;
  std::vector<std::vector<std::string>> words;  // "KEY=VALUE", and a number if the name was not unique
  for (const auto& group : groups) {
    const auto& config = group.runs.front().config;
    configs.push_back(without_ending(config));
    whole.push_back(group.name);
    std::istringstream text(group.name.substr(std::min(group.name.size(), config.size())));
    words.emplace_back(std::istream_iterator<std::string>(text), std::istream_iterator<std::string>());
  }
  const auto is_common = [&](const std::string& word) {
    return std::ranges::all_of(words, [&](const auto& own) { return std::ranges::find(own, word) != own.end(); });
  };
  const auto different = std::set(configs.begin(), configs.end()).size();
  const bool is_one_config = different == 1, has_own_config = different == groups.size();
  auto common = configs.front();
  for (const auto& config : configs) common.erase(std::ranges::mismatch(common, config).in1, common.end());
  const auto start = common.rfind('_') + 1;  // 0 without an underscore
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto name = is_one_config ? "" : configs[i].substr(start);
    for (const auto& word : words[i])
      if (!is_common(word) && (is_one_config || !has_own_config)) name += (name.empty() ? "" : " ") + shortened(word);
    names.push_back(name.empty() ? configs[i] : name);
  }
  const bool unique = std::set(names.begin(), names.end()).size() == names.size();
  return unique ? names : whole;
}

Comparison compare_runs(std::vector<RunRecord> runs, const ComparisonOptions& options) {
  Comparison comparison{.by = options.by, .margin = options.margin};
  comparison.groups = group_runs(std::move(runs), options.by, comparison.notes);
  if (comparison.groups.empty()) fail_usage("there is no finished run to compare");
  comparison.measures = choose_measures(comparison.groups, options.measures);
  if (!options.frontier.empty()) choose_measures(comparison.groups, options.frontier);  // for its errors
  comparison.differing_keys = find_differing_keys(comparison.groups);
  choose_references(comparison.groups, options);
  add_measures(comparison, options.frontier);
  add_differences(comparison);
  const auto is_tokenizer = [](const std::string& key) { return key.starts_with("data.tokenizer"); };
  if (std::ranges::any_of(comparison.differing_keys, is_tokenizer))
    comparison.notes.emplace_back("the tokenizers differ: losses per token cannot be compared; bits per byte can be");
  return comparison;
}

std::string to_text(const Comparison& comparison) {
  const auto names = short_names(comparison.groups);
  std::size_t runs = 0;
  for (const auto& group : comparison.groups) runs += group.runs.size();
  const auto count = comparison.groups.size();
  auto text = fmt::format("{} run{} in {} group{}; * marks what the others are compared with, paired by seed\n", runs,
                          runs == 1 ? "" : "s", count, count == 1 ? "" : "s");
  if (comparison.margin) text += fmt::format("margin: ±{}\n", *comparison.margin);
  text += list_groups(comparison);
  for (const auto& measure : comparison.measures) text += measure_block(comparison, names, measure);
  return text + mcnemar_block(comparison, names) + cost_block(comparison, names);
}

std::vector<std::string> measures_of_columns(const std::vector<std::string>& columns) {
  std::vector<std::string> ids;
  for (const auto& text : columns) {
    const auto name = parse_column(text).measure;
    if (!is_of_groups(name) && std::ranges::find(ids, name) == ids.end()) ids.push_back(name);
  }
  return ids;
}

std::string to_markdown(const Comparison& comparison, const std::vector<std::string>& names) {
  std::vector<Column> columns;
  for (const auto& name : names) columns.push_back(parse_column(name));
  if (names.empty()) columns = default_columns(comparison);
  if (!comparison.margin && std::ranges::find(columns, "equivalent", &Column::part) != columns.end())
    fail_usage("a column MEASURE:equivalent needs --margin");
  std::vector<std::string> titles = {"config", "seeds"};
  for (const auto& column : columns) titles.push_back(title_of(column, comparison));
  auto text = markdown_row(titles) + "|" + joined(titles, "", [](const auto&) { return "---|"; }) + "\n";
  for (const auto& group : comparison.groups) {
    std::vector<std::string> cells = {group.name, fmt::format("{}", group.runs.size())};
    for (const auto& column : columns) cells.push_back(cell_of(column, group));
    text += markdown_row(cells);
  }
  return text;
}

std::string to_csv(const Comparison& comparison) {
  std::string text = "group,metric,n,mean,sd,pairs,difference,low,high,p,equivalent\n";
  const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
  for (const auto& group : comparison.groups)
    for (const auto& measure : comparison.measures) {
      const auto& values = group.measures.at(measure.id);
      if (values.values.empty()) continue;
      text += fmt::format("{},{},{},{},{},", csv_field(group.name), csv_field(measure.id), values.summary.count,
                          values.summary.mean, number(values.summary.deviation));
      if (const auto& paired = values.difference)
        text += fmt::format("{},{},{},{},{},{}\n", paired->pairs, paired->mean, number(paired->low),
                            number(paired->high), number(paired->p), equivalent_cell(values));
      else
        text += ",,,,,\n";
    }
  return text;
}

}  // namespace metaformer
