#include "report/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/rows.h"
#include "base/text.h"
#include "report/grouping.h"

namespace metaformer {

namespace {

constexpr int name_width = 30;

// Columns of a terminal: "±" and "…" are two and three bytes.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(std::string text, int width) {
  const auto columns = columns_of(text);
  return columns >= static_cast<std::size_t>(width) ? text : text + std::string(width - columns, ' ');
}

std::string cut(const std::string& name, std::size_t width) {
  if (columns_of(name) <= width || columns_of(name) != name.size()) return name;
  const auto kept = width - 1, start = kept / 2;
  return name.substr(0, start) + "…" + name.substr(name.size() - (kept - start));
}

std::string label(const Comparison& comparison, const std::vector<std::string>& names, std::size_t group) {
  const auto mark = comparison.groups[group].reference == group ? "*" : " ";
  return padded(fmt::format("{}{:>2} {}", mark, group + 1, cut(names[group], name_width - 5)), name_width);
}

std::string list_groups(const Comparison& comparison) {
  std::string text;
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& group = comparison.groups[i];
    std::vector<std::int64_t> seeds;
    for (const auto& run : group.runs) seeds.push_back(run.seed);
    text += fmt::format("{}{:>2} {}  (seed{} {})\n", group.reference == i ? "*" : " ", i + 1, group.name,
                        seeds.size() == 1 ? "" : "s", fmt::join(seeds, ", "));
    std::vector<std::string> settings;
    for (const auto& [key, value] : group.settings) settings.push_back(fmt::format("{}: {}", key, value));
    if (!settings.empty()) text += fmt::format("      {}\n", fmt::join(settings, "\n      "));
  }
  return text;
}

std::string verdict(const PairedDifference& difference) {
  std::string text = difference.p ? fmt::format("  p {:.2g}", *difference.p) : "";
  if (difference.equivalent) text += *difference.equivalent ? "  inside the margin" : "  not inside the margin";
  return text;
}

std::string metric_block(const Comparison& comparison, const std::vector<std::string>& names, const Metric& metric) {
  auto text = fmt::format("\n{} {}{}\n", padded(metric.title, name_width - 1), padded("mean ± sd (runs)", 24),
                          "difference to * (95% interval; pairs)");
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& values = comparison.groups[i].metrics.at(metric.name);
    const auto mean = values.values.empty() ? std::string("–")
                                            : fmt::format("{} ({})", mean_cell(metric, values), values.summary.count);
    auto line = label(comparison, names, i) + padded(mean, 24) + difference_cell(metric, values);
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
  return fmt::format("\n{}{:<8}{:>10}{:>12}   {:<12}{}\n", padded("McNemar's test, texts right by", name_width),
                     " seed", "only *", "only this", "p (exact)", "p (chi-square)") +
         text;
}

std::string cost_block(const Comparison& comparison, const std::vector<std::string>& names) {
  const auto column = [](const Metric& metric, const std::string& text) {
    return fmt::format("{:>{}}", text, metric.title.size() + 2);
  };
  auto text = fmt::format("\n{}", std::string(name_width, ' '));
  for (const auto& name : cost_metrics()) text += column(metric_of(name), metric_of(name).title);
  text += "\n";
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    text += label(comparison, names, i);
    for (const auto& name : cost_metrics()) {
      const auto& values = comparison.groups[i].metrics.at(name);
      text += column(metric_of(name), values.values.empty() ? "-" : shown(metric_of(name), values.summary.mean));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string to_text(const Comparison& comparison) {
  const auto names = short_names(comparison.groups);
  std::size_t runs = 0;
  for (const auto& group : comparison.groups) runs += group.runs.size();
  const auto count = comparison.groups.size();
  auto text = fmt::format("{} run{} in {} group{}; * marks what the others are compared with, paired by seed\n", runs,
                          runs == 1 ? "" : "s", count, count == 1 ? "" : "s");
  if (comparison.margin) text += fmt::format("margin: ±{}\n", *comparison.margin);
  text += list_groups(comparison);
  for (const auto& metric : comparison.metrics) text += metric_block(comparison, names, metric);
  return text + mcnemar_block(comparison, names) + cost_block(comparison, names);
}

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

using Json = nlohmann::ordered_json;

namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json describe(const PairedDifference& difference) {
  return {{"pairs", difference.pairs},      {"mean", difference.mean},
          {"low", or_null(difference.low)}, {"high", or_null(difference.high)},
          {"p", or_null(difference.p)},     {"equivalent", or_null(difference.equivalent)}};
}

Json describe(const GroupMetric& metric) {
  Json json = {{"n", metric.summary.count},
               {"mean", metric.summary.count > 0 ? Json(metric.summary.mean) : Json()},
               {"sd", or_null(metric.summary.deviation)}};
  json["values"] = Json::object();
  for (const auto& [seed, value] : metric.values) json["values"][std::to_string(seed)] = value;
  if (metric.difference) json["difference"] = describe(*metric.difference);
  return json;
}

Json describe(const McNemarTest& test) {
  return {{"seed", test.seed},       {"only_reference", test.only_reference}, {"only_this", test.only_this},
          {"p_exact", test.p_exact}, {"chi_square", test.chi_square},         {"p_chi_square", test.p_chi_square}};
}

Json describe(const RunRecord& run) {
  Json json = {{"seed", run.seed}, {"source", run.source}, {"key", run.key}};
  if (run.attention_collapse) json["attention_collapse"] = to_json(*run.attention_collapse);
  return json;
}

Json describe(const ComparedGroup& group, const std::string& short_name, const std::string& reference) {
  Json json = {{"name", group.name}, {"short_name", short_name}, {"reference", reference}};
  json["settings"] = group.settings;
  for (const auto& run : group.runs) json["runs"].push_back(describe(run));
  for (const auto& [name, metric] : group.metrics)
    if (metric.summary.count > 0) json["metrics"][name] = describe(metric);
  for (const auto& test : group.mcnemar) json["mcnemar"].push_back(describe(test));
  return json;
}

}  // namespace

Json to_json(const Comparison& comparison) {
  Json json = {{"margin", or_null(comparison.margin)}, {"differing_keys", comparison.differing_keys}};
  for (const auto& metric : comparison.metrics)
    json["metrics"].push_back(
        {{"name", metric.name}, {"title", metric.title}, {"scale", metric.scale}, {"digits", metric.digits}});
  const auto names = short_names(comparison.groups);
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& group = comparison.groups[i];
    json["groups"].push_back(describe(group, names[i], comparison.groups[group.reference].name));
  }
  json["notes"] = comparison.notes;
  return json;
}

}  // namespace metaformer
