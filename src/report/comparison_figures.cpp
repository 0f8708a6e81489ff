#include "report/comparison_figures.h"

#include <fmt/format.h>

#include "compare/group_names.h"

namespace metaformer {

namespace {

figures::Interval difference_row(const std::string& name, const Metric& metric, const PairedDifference& difference) {
  const double mean = difference.mean * metric.scale;
  return {.name = name,
          .value = mean,
          .low = difference.low ? *difference.low * metric.scale : mean,
          .high = difference.high ? *difference.high * metric.scale : mean};
}

figures::Interval value_row(const std::string& name, const Metric& metric, const GroupMetric& result) {
  figures::Interval row{.name = name, .value = result.summary.mean * metric.scale};
  row.low = row.high = row.value;
  for (const auto& [seed, value] : result.values) row.points.push_back(value * metric.scale);
  return row;
}

}  // namespace

std::vector<NamedFigure> figures_of(const Comparison& comparison) {
  std::vector<NamedFigure> figures;
  const auto names = short_names(comparison.groups);
  for (const auto& metric : comparison.metrics) {
    figures::IntervalChart values{.x = {.label = metric.title}};
    figures::IntervalChart differences{.x = {.label = "difference of " + metric.title}, .reference = 0};
    for (std::size_t i = 0; i < comparison.groups.size(); ++i) {
      const auto& group = comparison.groups[i];
      const auto found = group.metrics.find(metric.name);
      if (found == group.metrics.end() || found->second.summary.count == 0) continue;
      values.rows.push_back(value_row(names[i], metric, found->second));
      if (const auto& difference = found->second.difference)
        differences.rows.push_back(difference_row(names[i], metric, *difference));
    }
    if (values.rows.empty()) continue;
    figures.push_back({metric.name,
                       {.title = metric.title,
                        .description = "Large dots: means over the seeds; small dots: single runs.",
                        .panels = {{"", std::move(values)}}}});
    if (differences.rows.empty()) continue;
    figures.push_back({metric.name + "_differences",
                       {.title = fmt::format("Differences of {} to the reference", metric.title),
                        .description = "Paired by seed, with 95% intervals.",
                        .panels = {{"", std::move(differences)}}}});
  }
  return figures;
}

}  // namespace metaformer
