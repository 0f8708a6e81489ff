#pragma once
// The curves of runs over their steps, from metrics.jsonl, and the mean curves of groups.

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "report/figure.h"

namespace metaformer {

// Values by step. For a group of runs: means of time, tokens and value at the steps that all of them have; low and high
// are the mean minus and plus one standard deviation (n - 1 in the denominator). For a block: mean, lowest and highest
// value of its heads.
struct StepCurve {
  std::vector<double> step;
  std::vector<double> time = {};    // seconds of training; empty for blocks
  std::vector<double> tokens = {};  // of training; NaN where they are not known; empty for blocks
  std::vector<double> value;
  std::vector<double> low = {}, high = {};  // empty for one run or one number
};

// One kind of measurement of blocks during a training (docs/run_directory.md, "diagnostics").
struct BlockPanel {
  std::string title;
  bool log = false;                                           // drawn with a logarithmic axis
  std::vector<std::pair<std::string, StepCurve>> lines = {};  // by block, in the order of the file
};

struct LoggedCurves {
  // By name: "train loss", "validation loss", "validation accuracy", "learning rate", "tokens per second", ... If a run
  // estimates its validation loss on random batches, "validation loss" has these estimates.
  std::map<std::string, StepCurve> curves;
  std::vector<BlockPanel> blocks;  // empty for a run without diagnostics
};

// Errors: exit code 3 for a file that cannot be read; lines that are not JSON are skipped.
LoggedCurves read_curves(const std::filesystem::path& metrics_file);

// Whether a point of the curve describes the steps since the line before, like a training loss.
bool describes_interval(const std::string& name);

// A curve of at most `most_points`. `averages`: every point is the mean of consecutive ones, at the last one's step
// (for curves that describe intervals); else every n-th point and the last one.
StepCurve thinned(const StepCurve& curve, std::size_t most_points, bool averages);

StepCurve mean_curve(const std::vector<const StepCurve*>& curves);

// One kind of curve for all runs and groups of a report.
struct CurveSeries {
  std::vector<StepCurve> runs;    // by run; empty: the run has no such curve
  std::vector<StepCurve> groups;  // by group
};
using CurveTable = std::map<std::string, CurveSeries>;

// A choice of curves on the page: one series, or training and validation together.
struct CurveView {
  std::string name, title, unit;
  std::vector<std::string> series;
};
std::vector<CurveView> views_of(const CurveTable& table);

// A view by step and by time.
figures::Figure figure_of(const CurveTable& table, const CurveView& view, const std::vector<std::string>& group_names);

}  // namespace metaformer
