#pragma once
// The curves of runs over their steps, from metrics.jsonl, and the mean curves of groups.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "figures/figure.h"

namespace metaformer {

// A metric of one run, in the order of its steps; `time` in seconds of training.
struct RunCurve {
  std::vector<double> step, time, value;
};

// Over the runs of a group, at the steps that all of them have: means of time and value, and the mean minus and plus
// one standard deviation (n - 1 in the denominator), which are empty for one run.
struct GroupCurve {
  std::vector<double> step, time, mean, low, high;
};

// By name: "train loss", "validation loss", "validation accuracy", ... Where a run estimates its validation loss on
// random batches, "validation loss" are these estimates. Errors: exit code 3 for a file that cannot be read; lines that
// are no JSON are passed over.
std::map<std::string, RunCurve> read_curves(const std::filesystem::path& metrics_file);

// A curve of at most so many points. `averages`: every point is the mean of consecutive ones, at the last one's step
// (for training losses, which are means since the line before); else every n-th point and the last one.
RunCurve thinned(const RunCurve& curve, std::size_t most_points, bool averages);

GroupCurve mean_curve(const std::vector<const RunCurve*>& curves);

// All runs and groups of a report.
struct CurveSeries {
  std::vector<RunCurve> runs;      // by run; empty: the run has no such metric
  std::vector<GroupCurve> groups;  // by group
};
using CurveTable = std::map<std::string, CurveSeries>;

// What the page offers to look at: one series, or training and validation together.
struct CurveView {
  std::string name, title, unit;
  std::vector<std::string> series;
};
std::vector<CurveView> views_of(const CurveTable& table);

// {"views": [...], "series": {NAME: {"runs": [{"step", "time", "value"} or null], "groups": [{.., "low", "high"}]}}}
nlohmann::ordered_json to_json(const CurveTable& table);

// A view by step and by time.
figures::Figure figure_of(const CurveTable& table, const CurveView& view, const std::vector<std::string>& group_names);

}  // namespace metaformer
