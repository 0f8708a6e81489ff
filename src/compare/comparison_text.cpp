#include "compare/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/comparison_table.h"
#include "compare/group_names.h"

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

}  // namespace metaformer
