#pragma once
// The curves of runs over their steps, from metrics.jsonl, and the mean curves of groups.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/figure.h"

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

// A measurement of blocks over a training (docs/run_directory.md, "diagnostics"): of one group, in the order of its
// steps. Of a list by head, `value` is the mean over the heads, low and high are the lowest and the highest; they are
// empty where there is one number.
struct BlockCurve {
  std::string block;
  std::vector<double> step, value, low, high;
};

// By title, what the page shows of the diagnostics; empty for a run without. Errors: as read_curves.
using BlockCurves = std::map<std::string, std::vector<BlockCurve>>;
BlockCurves read_block_curves(const std::filesystem::path& metrics_file);

// Every n-th point and the last one, so that no curve has more than so many.
nlohmann::ordered_json to_json(const BlockCurves& curves, std::size_t most_points);

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
