#pragma once
// A comparison as text, as a table, as JSON.

#include <string>
#include <vector>

#include "report/grouping.h"

namespace metaformer {

// A comparison for a terminal.

// The groups with what differs between them, a block for each metric (mean, standard deviation, number of runs,
// difference with its 95% interval, p value), McNemar's tests, time and size. Lines are at most 100 columns wide,
// unless a config's own values are longer.
std::string to_text(const Comparison& comparison);

// A comparison as a table with a row for each group: Markdown, or CSV for other programs.

// Markdown with these columns after the group's name and its number of seeds; none given: every metric with its
// difference, time and parameters. METRIC is mean ± standard deviation, METRIC:difference the paired difference with
// its 95% interval, METRIC:equivalent whether that lies inside the margin, METRIC:worst the worst run, METRIC:values
// those of all seeds; "mcnemar" the p values by seed, "settings" the config keys that differ. Errors (exit code 2): no
// such column.
std::string to_markdown(const Comparison& comparison, const std::vector<std::string>& columns = {});

// The metrics that such columns are of.
std::vector<std::string> metrics_of_columns(const std::vector<std::string>& columns);

// CSV: a line for each group and metric, with the columns group, metric, n, mean, sd, pairs, difference, low, high, p,
// equivalent. Numbers are as in the runs, not in the metric's scale.
std::string to_csv(const Comparison& comparison);

// "1.8478 ± 0.0125", "804,096"; "–" without values.
std::string mean_cell(const Metric& metric, const GroupMetric& group);

// "+0.0337 (+0.0202 to +0.0472)"; "" for a reference; without an interval only the mean.
std::string difference_cell(const Metric& metric, const GroupMetric& group);

}  // namespace metaformer
