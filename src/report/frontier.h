#pragma once
// Groups of runs that no other group beats in two measures at once, such as the state's size and the loss.

#include <array>

#include "report/comparison.h"
#include "report/figure.h"

namespace metaformer {

// For each point, whether no other point is as good in both coordinates and better in one. Less is better.
std::vector<bool> pareto_front(const std::vector<double>& x, const std::vector<double>& y);

struct FrontierPoint {
  std::size_t group;  // of the comparison
  bool is_on_front;   // by the means over its runs, and `better` is empty
  // Among the groups that are as good in x or better, and in y better with a 95% interval of the paired difference that
  // excludes 0, the one with the best y.
  std::optional<std::size_t> better;
  PairedDifference difference = {};  // y of this group minus that of the better one
};

struct Frontier {
  Measure x, y;
  std::vector<FrontierPoint> points;  // of the groups that have both measures, by falling quality of x
  std::vector<std::size_t> left_out;  // the groups that lack one
};

// Less is better unless a measure says otherwise. The comparison must have both measures.
Frontier frontier_of(const Comparison& comparison, const std::string& x, const std::string& y);

std::string to_text(const Frontier& frontier, const Comparison& comparison);
std::string to_markdown(const Frontier& frontier, const Comparison& comparison);
// {"x", "y": ids, "measures": both as to_json(Measure), "points": [{"group": its name, "front", "verdict": as the
// tables say it, "low", "high": the 95% interval of the mean of y, or null; "better": name, "difference": {..}}],
// "left_out": names}
nlohmann::ordered_json to_json(const Frontier& frontier, const Comparison& comparison);
figures::Figure figure_of(const Frontier& frontier, const Comparison& comparison);

}  // namespace metaformer
