#include "report/compare_runs.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "report/grouping.h"
#include "report/measure.h"
#include "report/paired_statistics.h"
#include "run/test_predictions.h"

namespace metaformer {

// Tests of two classifiers on the same test texts, from what their runs predicted.

// McNemar's test of two runs with the same seed. Nothing, with `problem` saying why, when one of them has no
// test_predictions.safetensors or when those are not of the same texts. Errors: those of read_test_predictions.
std::optional<McNemarTest> compare_predictions(const RunRecord& reference, const RunRecord& run, std::string& problem);

namespace {

std::optional<TestPredictions> predictions_of(const RunRecord& run, std::string& problem) {
  if (run.folder.empty()) {
    problem = fmt::format("{} is a row of a results file, which has no predictions", run.source);
    return std::nullopt;
  }
  auto predictions = read_test_predictions(RunDirectory::open(run.folder));
  if (!predictions) problem = fmt::format("{} has no test_predictions.safetensors", run.source);
  return predictions;
}

// Whether each text's likeliest class is its own; of equal ones the first.
torch::Tensor correct(const TestPredictions& predictions) {
  return predictions.probabilities_lv.argmax(1) == predictions.labels_l;
}

}  // namespace

std::optional<McNemarTest> compare_predictions(const RunRecord& reference, const RunRecord& run, std::string& problem) {
  const auto theirs = predictions_of(reference, problem);
  const auto ours = theirs ? predictions_of(run, problem) : std::nullopt;
  if (!ours) return std::nullopt;
  if (!ours->labels_l.equal(theirs->labels_l)) {
    problem = fmt::format("{} and {} have different test texts", reference.source, run.source);
    return std::nullopt;
  }
  const auto right_l = correct(*ours), their_right_l = correct(*theirs);
  return mcnemar(run.seed, (their_right_l & ~right_l).sum().item<std::int64_t>(),
                 (right_l & ~their_right_l).sum().item<std::int64_t>());
}

namespace {

std::vector<Metric> choose_metrics(const std::vector<RunRecord>& runs, const std::vector<std::string>& wanted) {
  std::set<std::string> present;
  for (const auto& run : runs)
    for (const auto& [name, value] : run.metrics) present.insert(name);
  std::vector<Metric> metrics;
  for (const auto& name : wanted.empty() ? default_metrics(present) : wanted) {
    if (!present.contains(name) && !may_be_absent(name))
      throw Error(ExitCode::usage,
                  fmt::format("no run has a metric {}{}; there are {}", in_quotes(name),
                              did_you_mean(name, {present.begin(), present.end()}), fmt::join(present, ", ")));
    metrics.push_back(metric_of(name));
  }
  return metrics;
}

GroupMetric values_of(const ComparedGroup& group, const std::string& metric) {
  GroupMetric result;
  std::vector<double> values;
  for (const auto& run : group.runs)
    if (const auto found = run.metrics.find(metric); found != run.metrics.end()) {
      result.values[run.seed] = found->second;
      values.push_back(found->second);
    }
  result.summary = summarise(values);
  return result;
}

void note_missing_values(const ComparedGroup& group, const std::string& metric, std::vector<std::string>& notes) {
  const auto& values = group.metrics.at(metric).values;
  if (values.empty() || may_be_absent(metric)) return;
  for (const auto& run : group.runs)
    if (!values.contains(run.seed))
      notes.push_back(fmt::format("{}: left out of {}, which it does not have", run.source, metric));
}

// Seeds that only one of two groups has say nothing about their difference.
void note_unpaired_seeds(const ComparedGroup& group, const ComparedGroup& reference, std::vector<std::string>& notes) {
  const auto has_seed = [](const ComparedGroup& of, std::int64_t seed) {
    return std::any_of(of.runs.begin(), of.runs.end(), [&](const auto& run) { return run.seed == seed; });
  };
  for (const auto& run : group.runs)
    if (!has_seed(reference, run.seed))
      notes.push_back(
          fmt::format("{}: left out of differences: {} has no run with seed {}", run.source, reference.name, run.seed));
  for (const auto& run : reference.runs)
    if (!has_seed(group, run.seed))
      notes.push_back(fmt::format("{}: left out of the differences of {}, which has no run with seed {}", run.source,
                                  group.name, run.seed));
}

std::optional<PairedDifference> difference(const GroupMetric& group, const GroupMetric& reference, const Metric& metric,
                                           std::optional<double> margin) {
  std::vector<double> differences;
  for (const auto& [seed, value] : group.values)
    if (const auto other = reference.values.find(seed); other != reference.values.end())
      differences.push_back(value - other->second);
  if (differences.empty()) return std::nullopt;
  return paired_difference(differences, margin ? std::optional(*margin / metric.scale) : std::nullopt);
}

// Translators have test metrics, too.
bool predicts_classes(const RunRecord& run) { return !run.metrics.contains("test_bleu"); }

void add_mcnemar(ComparedGroup& group, const ComparedGroup& reference, std::vector<std::string>& notes) {
  for (const auto& run : group.runs) {
    if (!predicts_classes(run) || run.folder.empty()) continue;  // without a folder: a row of a results file
    const auto partner = std::find_if(reference.runs.begin(), reference.runs.end(),
                                      [&](const auto& other) { return other.seed == run.seed; });
    if (partner == reference.runs.end()) continue;
    std::string problem;
    if (const auto test = compare_predictions(*partner, run, problem)) {
      group.mcnemar.push_back(*test);
    } else {
      notes.push_back(fmt::format("{}: no McNemar test with seed {}: {}", group.name, run.seed, problem));
    }
  }
}

void add_metrics(Comparison& comparison) {
  for (auto& group : comparison.groups) {
    for (const auto& metric : comparison.metrics) {
      group.metrics[metric.name] = values_of(group, metric.name);
      note_missing_values(group, metric.name, comparison.notes);
    }
    for (const auto& name : cost_metrics())
      if (!group.metrics.contains(name)) group.metrics[name] = values_of(group, name);
  }
}

void add_differences(Comparison& comparison) {
  const auto is_test_metric = [](const Metric& metric) { return metric.name.starts_with("test_"); };
  const bool classifies = std::any_of(comparison.metrics.begin(), comparison.metrics.end(), is_test_metric);
  bool has_rows = false;
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    auto& group = comparison.groups[i];
    if (group.reference == i) continue;
    const auto& reference = comparison.groups[group.reference];
    note_unpaired_seeds(group, reference, comparison.notes);
    for (const auto& metric : comparison.metrics) {
      auto& ours = group.metrics.at(metric.name);
      ours.difference = difference(ours, reference.metrics.at(metric.name), metric, comparison.margin);
    }
    if (classifies) add_mcnemar(group, reference, comparison.notes);
    const auto& first = group.runs.front();
    has_rows = has_rows || (predicts_classes(first) && first.folder.empty());
  }
  if (classifies && has_rows)
    comparison.notes.emplace_back("results files hold no predictions, so their rows have no McNemar test");
}

// Losses of a token say nothing about those of another tokenizer's.
void note_tokenizers(Comparison& comparison) {
  const auto& keys = comparison.differing_keys;
  const bool differ =
      std::any_of(keys.begin(), keys.end(), [](const auto& key) { return key.starts_with("data.tokenizer"); });
  if (differ)
    comparison.notes.emplace_back(
        "the tokenizers differ: losses per token cannot be compared; bits per character can be");
}

}  // namespace

Comparison compare_runs(std::vector<RunRecord> runs, const ComparisonOptions& options) {
  Comparison comparison{.by = options.by, .margin = options.margin};
  comparison.groups = group_runs(std::move(runs), options.by, comparison.notes);
  if (comparison.groups.empty()) throw Error(ExitCode::usage, "there is no finished run to compare");
  std::vector<RunRecord> kept;
  for (const auto& group : comparison.groups) kept.insert(kept.end(), group.runs.begin(), group.runs.end());
  comparison.metrics = choose_metrics(kept, options.metrics);
  comparison.differing_keys = find_differing_keys(comparison.groups);
  choose_references(comparison.groups, options);
  add_metrics(comparison);
  add_differences(comparison);
  note_tokenizers(comparison);
  return comparison;
}

}  // namespace metaformer
