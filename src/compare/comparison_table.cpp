#include "compare/comparison_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/delimited_rows.h"
#include "base/error.h"
#include "base/text.h"

namespace metaformer {

namespace {

struct Column {
  std::string metric, part;  // "val_loss:difference"
};

const std::vector<std::string>& parts() {
  static const std::vector<std::string> names = {"", "difference", "equivalent", "worst", "values"};
  return names;
}

bool is_of_groups(const std::string& name) { return name == "mcnemar" || name == "settings"; }

Column parse_column(const std::string& text) {
  const auto colon = text.find(':');
  Column column{text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1)};
  if (std::find(parts().begin(), parts().end(), column.part) == parts().end())
    throw Error(ExitCode::usage, fmt::format("--columns {}: no such part; expected {}", in_quotes(text),
                                             join_alternatives({parts().begin() + 1, parts().end()})));
  return column;
}

std::vector<Column> default_columns(const Comparison& comparison) {
  std::vector<Column> columns;
  for (const auto& metric : comparison.metrics) {
    columns.push_back({metric.name, ""});
    columns.push_back({metric.name, "difference"});
    if (comparison.margin) columns.push_back({metric.name, "equivalent"});
  }
  const auto has_tests = [](const auto& group) { return !group.mcnemar.empty(); };
  if (std::any_of(comparison.groups.begin(), comparison.groups.end(), has_tests)) columns.push_back({"mcnemar", ""});
  for (const char* cost : {"train_seconds", "parameters", "mixer_parameters"}) columns.push_back({cost, ""});
  return columns;
}

// What differences are to, in the words of a table's head.
std::string describe_reference(const Comparison& comparison) {
  if (!comparison.by.empty()) return "at equal " + comparison.by.substr(comparison.by.rfind('.') + 1);
  const auto first = comparison.groups.front().reference;
  return "to " + (first == 0 ? "the first row" : comparison.groups[first].name);
}

std::string title_of(const Column& column, const Comparison& comparison) {
  if (column.metric == "mcnemar") return "McNemar's p by seed";
  if (column.metric == "settings") return "what differs";
  const auto metric = metric_of(column.metric);
  if (column.part == "difference") return fmt::format("difference {} (95% interval)", describe_reference(comparison));
  if (column.part == "equivalent") return fmt::format("inside ±{}", comparison.margin.value_or(0));
  if (column.part == "worst") return "worst";
  if (column.part == "values" || metric.digits == 0) return metric.title;
  return metric.title + ", mean ± sd";
}

std::string worst_cell(const Metric& metric, const GroupMetric& group) {
  if (group.values.empty()) return "–";
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [low, high] = std::minmax_element(group.values.begin(), group.values.end(), by_value);
  return shown(metric, metric.better == Better::lower ? high->second : low->second);
}

// In the order of the runs; "never" for what may be absent.
std::string values_cell(const Metric& metric, const ComparedGroup& group) {
  std::vector<std::string> values;
  for (const auto& run : group.runs) {
    const auto found = run.metrics.find(metric.name);
    values.push_back(found != run.metrics.end()   ? fmt::format("{:.{}f}", found->second * metric.scale, metric.digits)
                     : may_be_absent(metric.name) ? "never"
                                                  : "–");
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

std::string equivalent_cell(const GroupMetric& group) {
  if (!group.difference || !group.difference->equivalent) return "";
  return *group.difference->equivalent ? "yes" : "no";
}

std::string mcnemar_cell(const ComparedGroup& group) {
  std::vector<std::string> values;
  for (const auto& test : group.mcnemar) values.push_back(fmt::format("{:.2g}", test.p_exact));
  return fmt::format("{}", fmt::join(values, ", "));
}

std::string settings_cell(const ComparedGroup& group) {
  std::vector<std::string> values;
  for (const auto& [key, value] : group.settings) values.push_back(fmt::format("`{}: {}`", key, value));
  return fmt::format("{}", fmt::join(values, ", "));
}

std::string cell_of(const Column& column, const ComparedGroup& group) {
  if (column.metric == "mcnemar") return mcnemar_cell(group);
  if (column.metric == "settings") return settings_cell(group);
  const auto metric = metric_of(column.metric);
  const auto found = group.metrics.find(column.metric);
  const auto values = found == group.metrics.end() ? GroupMetric{} : found->second;
  if (column.part == "difference") return difference_cell(metric, values);
  if (column.part == "equivalent") return equivalent_cell(values);
  if (column.part == "worst") return worst_cell(metric, values);
  if (column.part == "values") return values_cell(metric, group);
  return mean_cell(metric, values);
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const auto& cell : cells) {
    row += " ";
    for (const char c : cell) row += c == '|' ? "\\|" : std::string(1, c == '\n' || c == '\r' ? ' ' : c);
    row += " |";
  }
  return row + "\n";
}

}  // namespace

std::string mean_cell(const Metric& metric, const GroupMetric& group) {
  if (group.values.empty()) return "–";
  const auto mean = shown(metric, group.summary.mean);
  if (!group.summary.deviation || metric.digits == 0) return mean;
  return fmt::format("{} ± {}", mean, shown(metric, *group.summary.deviation));
}

std::string difference_cell(const Metric& metric, const GroupMetric& group) {
  if (!group.difference) return "";
  const auto& difference = *group.difference;
  const auto mean = shown_difference(metric, difference.mean);
  if (!difference.low) return mean;
  return fmt::format("{} ({} to {})", mean, shown_difference(metric, *difference.low),
                     shown_difference(metric, *difference.high));
}

std::vector<std::string> metrics_of_columns(const std::vector<std::string>& columns) {
  std::vector<std::string> metrics;
  for (const auto& text : columns) {
    const auto name = parse_column(text).metric;
    if (!is_of_groups(name) && std::find(metrics.begin(), metrics.end(), name) == metrics.end())
      metrics.push_back(name);
  }
  return metrics;
}

std::string to_markdown(const Comparison& comparison, const std::vector<std::string>& names) {
  std::vector<Column> columns;
  for (const auto& name : names) columns.push_back(parse_column(name));
  if (names.empty()) columns = default_columns(comparison);
  const auto asks = [](const Column& column) { return column.part == "equivalent"; };
  if (!comparison.margin && std::any_of(columns.begin(), columns.end(), asks))
    throw Error(ExitCode::usage, "a column METRIC:equivalent needs --margin");
  std::vector<std::string> titles = {"config", "seeds"};
  for (const auto& column : columns) titles.push_back(title_of(column, comparison));
  auto text = markdown_row(titles) + "|";
  for (std::size_t i = 0; i < titles.size(); ++i) text += "---|";
  text += "\n";
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
    for (const auto& metric : comparison.metrics) {
      const auto& values = group.metrics.at(metric.name);
      if (values.values.empty()) continue;
      const auto difference = values.difference.value_or(PairedDifference{});
      const bool is_paired = values.difference.has_value();
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(group.name), csv_field(metric.name),
                          values.summary.count, values.summary.mean, number(values.summary.deviation),
                          is_paired ? fmt::format("{}", difference.pairs) : "",
                          is_paired ? fmt::format("{}", difference.mean) : "", number(difference.low),
                          number(difference.high), number(difference.p), equivalent_cell(values));
    }
  return text;
}

}  // namespace metaformer
