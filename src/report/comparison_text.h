#pragma once
// A comparison as text for a terminal, as a table in Markdown, as CSV for other programs.

#include <string>
#include <vector>

#include "report/comparison.h"

namespace metaformer {

// The groups with the settings in which they differ, a block for each measure (mean, standard deviation, number of
// runs, difference with its 95% interval, p value), McNemar's tests, time and size. Lines are at most 100 columns wide,
// unless a config's own values are longer.
std::string to_text(const Comparison& comparison);

// Markdown: a row for each group, with these columns after its name and its number of seeds; none given: every measure
// with its difference, time and parameters. MEASURE is mean ± standard deviation, MEASURE:difference the paired
// difference with its 95% interval, MEASURE:equivalent whether that lies inside the margin, MEASURE:worst the worst
// run, MEASURE:values those of all seeds; "mcnemar" the p values by seed, "settings" the config keys that differ.
// Errors (exit code 2): no such column.
std::string to_markdown(const Comparison& comparison, const std::vector<std::string>& columns = {});

// The measures in such columns, by id.
std::vector<std::string> measures_of_columns(const std::vector<std::string>& columns);

// A line for each group and measure, with the columns group, metric, n, mean, sd, pairs, difference, low, high, p,
// equivalent. Numbers are as in the runs, not in the measure's scale.
std::string to_csv(const Comparison& comparison);

}  // namespace metaformer
