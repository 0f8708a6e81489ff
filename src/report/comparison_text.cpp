#include "report/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "base/error.h"
#include "base/rows.h"
#include "base/text.h"

namespace metaformer {

namespace {

constexpr int name_width = 30;

template <class Range, class Text>
std::string joined(const Range& range, const char* separator, Text text) {
  std::vector<std::string> texts;
  for (const auto& item : range) texts.push_back(text(item));
  return fmt::format("{}", fmt::join(texts, separator));
}

// "1.8478 ± 0.0125", "804,096"; "–" without values.
std::string mean_cell(const Measure& measure, const GroupMeasure& group) {
  if (group.values.empty()) return "–";
  const auto mean = shown(measure, group.summary.mean);
  if (!group.summary.deviation || measure.digits == 0) return mean;
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

// Columns of a terminal: "±" and "…" are two and three bytes.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, columns_of(text)), ' ');
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
  auto text = fmt::format("\n{} {}{}\n", padded(measure.title, name_width - 1), padded("mean ± sd (runs)", 24),
                          "difference to * (95% interval; pairs)");
  for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
    const auto& values = comparison.groups[i].measures.at(measure.id);
    const auto mean = values.values.empty() ? std::string("–")
                                            : fmt::format("{} ({})", mean_cell(measure, values), values.summary.count);
    auto line = label(comparison, names, i) + padded(mean, 24) + difference_cell(measure, values);
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
  for (const auto& measure : comparison.measures) text += measure_block(comparison, names, measure);
  return text + mcnemar_block(comparison, names) + cost_block(comparison, names);
}

namespace {

struct Column {
  std::string measure, part;  // "val_loss:difference"
};

bool is_of_groups(const std::string& name) { return name == "mcnemar" || name == "settings"; }

Column parse_column(const std::string& text) {
  static const std::vector<std::string> parts = {"difference", "equivalent", "worst", "values"};
  const auto colon = text.find(':');
  Column column{text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1)};
  if (!column.part.empty() && std::ranges::find(parts, column.part) == parts.end())
    throw Error(ExitCode::usage,
                fmt::format("--columns {}: no such part; expected {}", in_quotes(text), join_alternatives(parts)));
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

// What differences are to, in the words of a table's head.
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
  if (column.part == "values" || measure.digits == 0) return measure.title;
  return measure.title + ", mean ± sd";
}

std::string worst_cell(const Measure& measure, const GroupMeasure& group) {
  if (group.values.empty()) return "–";
  const auto [low, high] = std::ranges::minmax(group.values | std::views::values);
  return shown(measure, measure.better == Measure::Better::lower ? high : low);
}

// In the order of the runs; "never" for what may be absent.
std::string values_cell(const Measure& measure, const ComparedGroup& group) {
  return joined(group.runs, ", ", [&](const RunRecord& run) -> std::string {
    const auto found = run.measures.find(measure.id);
    if (found == run.measures.end()) return measure.may_be_absent ? "never" : "–";
    return fmt::format("{:.{}f}", found->second * measure.scale, measure.digits);
  });
}

std::string equivalent_cell(const GroupMeasure& group) {
  if (!group.difference || !group.difference->equivalent) return "";
  return *group.difference->equivalent ? "yes" : "no";
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
  static const std::map<char, std::string> written = {{'|', "\\|"}, {'\n', " "}, {'\r', " "}};
  std::string row = "|";
  for (const auto& cell : cells) {
    row += " ";
    for (const char c : cell) row += written.contains(c) ? written.at(c) : std::string(1, c);
    row += " |";
  }
  return row + "\n";
}

}  // namespace

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
    throw Error(ExitCode::usage, "a column MEASURE:equivalent needs --margin");
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
